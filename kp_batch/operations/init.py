"""Begins a project: writes its file, every value explained, and makes its warehouse."""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import Any

from kp_batch.config import RescoreConfig, read_project
from kp_batch.errors import KpBatchError
from kp_batch.files import atomic_write
from kp_batch.operations.deployment import deployment_of
from kp_batch.project import TABLES
from kp_batch.runs.reasons import join_reasons, setting_changes
from kp_batch.runs.run import effective_config
from kp_batch.scoring.profiles import load_profiles
from kp_batch.settings import PROJECT_FILE
from kp_batch.storage.urls import is_url
from kp_batch.text import printable
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.layout import check_apart, check_folder
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.publication import found

_COLUMNS = 100
_HEAD = (
    "A project of kp-batch: what its commands take in this folder, or with --project FILE. What is "
    "left out has its default, whatever the warehouse was scored with; what is given on the "
    "command line holds for that command. Relative paths start from this file's folder."
)
_ID = (
    "The warehouse that has to be there: where another one is, or none, a night fails. Take it out "
    "to allow any."
)
# The limits of a night: what passes one fails the run, which tells how to allow it once.
# Corrected files lose some traces; each removal is told.
_STRICT = {"max_new_rejects": 0, "max_removed": "5%", "max_unreadable": 0, "max_gone": 0}
_PROFILES = """
# Weights of a domain, in place of the built-in ones. Several [[profiles.NAME]], each with from,
# hold from that day on.
# [profiles.code]
# complexity = 0.25
# novelty = 0.25
# tool_diversity = 0.25
# outcome_confidence = 0.25
"""
_IMPORTS = """
# What kp-batch import takes from other systems into the archive.
# [[imports]]
# format = "auto"
# sources = ["spans"]
# archive = "traces"
# rules = "rules.toml"
"""


def begin_project(config: RescoreConfig, file: Path, *, prefect: bool = False) -> str:
    """Write a project's file, and make its warehouse unless it is there; returns its id.

    The settings of a warehouse that is there are written, so that none changes.

    Args:
        config: what is given; what it leaves out is as in the warehouse, or has its default.
        file: it must not exist.
        prefect: whether to write what deploys it, too; see `deployment_of`.

    Raises:
        KpBatchError: one of the files exists, and nothing was written; or the warehouse cannot be
            written.
    """
    if file.exists():
        raise KpBatchError(
            f"{printable(str(file))} is there already; change it, or name another with -o; to have "
            "what deploys it: kp-batch init --prefect"
        )
    deployment = _new_deployment(file) if prefect else {}
    check_folder(config.warehouse)
    check_apart(config.warehouse, config.archive)
    file.parent.mkdir(parents=True, exist_ok=True)
    manifest = found(config.warehouse)
    complete = effective_config(config)
    given = {*config.model_fields_set, *manifest.settings}
    text = _text(complete, given, file.parent, manifest.warehouse_id)
    _check_same(text, manifest)
    _write({**deployment, file: text})
    return manifest.warehouse_id


def deploy_project(file: Path) -> None:
    """Write what deploys a project that is there; see `deployment_of`.

    Raises:
        KpBatchError: one of the files exists, or the project's has faults; nothing was written.
    """
    read_project(file)
    _write(_new_deployment(file))


def _new_deployment(file: Path) -> Mapping[Path, str]:
    deployment = deployment_of(file)
    for path in filter(Path.exists, deployment):
        raise KpBatchError(
            f"{printable(str(path))} is there already; leave out --prefect, or move that away, or "
            "have all in another folder, with -o"
        )
    return deployment


def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as written:
            written.write_text(text, "utf-8")


def _check_same(text: str, manifest: Manifest) -> None:
    """Refuse a text that would change the settings of a warehouse which has some.

    Raises:
        KpBatchError: it would.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / PROJECT_FILE
        file.write_text(text, "utf-8")
        settings = RescoreConfig.model_validate({"project": file, "warehouse": ""}).settings
    changes = setting_changes(manifest.settings, settings)
    if manifest.settings and (reasons := join_reasons(changes)):
        raise KpBatchError(
            f"the warehouse has settings that no file can have: {reasons}; no file was written: "
            "run once with others, and try again"
        )


def _text(config: RescoreConfig, given: set[str], folder: Path, warehouse_id: str) -> str:
    warehouse = shown(config.warehouse)
    lines = [
        *_comment(_HEAD),
        "",
        _line("archive", [_seen_from(folder, path) for path in config.archive]),
        _line("warehouse", _seen_from(folder, warehouse)),
        *_comment(_ID),
        _line("warehouse_id", warehouse_id),
    ]
    values = config.model_dump(mode="json")
    strict = {name: limit for name, limit in _STRICT.items() if name not in given}
    for table, names in TABLES.items():
        lines += ["", f"[{table}]"]
        for name in names:
            lines += _setting(name, {**values, **strict}[name], is_given=name in {*given, *strict})
    return "\n".join((*lines, _PROFILES.rstrip(), *_profiles(config), "", *_audits(config, given)))


def _setting(name: str, value: Any, *, is_given: bool) -> Iterator[str]:
    """A setting with its explanation; one that nobody gave is shown by its default."""
    yield from _comment(RescoreConfig.model_fields[name].description or "")
    example = {"workers": 4, "ray": "auto", "timeout": "4h", "wait_at_most": "2h"}.get(name, value)
    yield _line(name, value) if is_given else f"# {_line(name, example)}"


def _profiles(config: RescoreConfig) -> Iterator[str]:
    """The weights that are not the built-in ones."""
    built_in = load_profiles().as_json()
    for name, profile in config.profiles.as_json().items():
        if profile == built_in.get(name):
            continue
        dated = isinstance(profile, list)
        for table in profile if dated else [profile]:
            key = f"profiles.{json.dumps(name)}"
            yield from ("", f"[[{key}]]" if dated else f"[{key}]")
            yield from (_line(dimension, value) for dimension, value in table.items())


def _audits(config: RescoreConfig, given: set[str]) -> Iterator[str]:
    """The audits of the warehouse; of a new one those to begin with."""
    if "audits" not in given:
        yield files("kp_batch.runs").joinpath("audits.toml").read_text("utf-8").rstrip()
    for name, audit in config.audits.as_json().items():
        yield f"[audits.{name}]"
        yield from (_line(key, value) for key, value in audit.items())
        yield ""
    yield _IMPORTS.rstrip()
    yield ""


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(text, _COLUMNS - 2)]


def _line(name: str, value: Any) -> str:
    """A key of TOML, whose texts, numbers and lists are written as in JSON."""
    text = json.dumps(value, ensure_ascii=False)
    text = text.replace("\x7f", "\\u007f")  # which TOML does not have as it is
    return f"{name} = {text}"


def _seen_from(folder: Path, path: str) -> str:
    is_here = is_url(path) or folder == Path()
    return path if is_here else str(Path(path).absolute())
