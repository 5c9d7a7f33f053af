"""Begin a project: write its file, with comments, and create its warehouse."""

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import wrap
from typing import Any

from kp_batch.config import RescoreConfig, read_project
from kp_batch.errors import KpBatchError
from kp_batch.files import PROJECT_FILE, atomic_write
from kp_batch.operations.toml_text import toml_tables, toml_value
from kp_batch.project import project_of
from kp_batch.runs.run import effective_config
from kp_batch.scoring.profiles import load_profiles
from kp_batch.settings import TABLES
from kp_batch.storage.urls import is_url
from kp_batch.text import printable
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.layout import check_apart, check_folder
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.publication import found
from kp_batch.warehouse.reasons import join_reasons, setting_changes

# The limits of a new project: somebody should look at a night that exceeds one.
_OF_A_PROJECT = {
    "report": True,
    "max_new_rejects": 0,
    "max_removed": "5%",
    "max_unreadable": 0,
    "max_gone": 0,
}
_COMMENT: Mapping[str, Any] = {"width": 108, "subsequent_indent": "# "}


def begin_project(config: RescoreConfig, file: Path, *, prefect: bool = False) -> str:
    """Write a project's file, create its warehouse unless it exists, and return its id.

    The file gets the settings of an existing warehouse, so none changes.

    Args:
        config: the given settings; others are the warehouse's, or defaults.
        file: the file, which must not exist.
        prefect: whether to write the prefect.yaml that deploys the project, too.

    Raises:
        KpBatchError: one of the files exists, and nothing was written; or the warehouse cannot be
            written.
    """
    if file.exists():
        raise KpBatchError(
            f"{printable(str(file))} already exists; change it, or name another file with -o; to "
            "add a deployment: kp-batch init --prefect"
        )
    deployment = _new_deployment(file) if prefect else None
    check_folder(config.warehouse)
    check_apart(config.warehouse, config.archive)
    file.parent.mkdir(parents=True, exist_ok=True)
    manifest = found(config.warehouse)
    complete = effective_config(config)
    given = {*config.model_fields_set, *manifest.settings}
    text = _text(complete, given, file.parent, manifest.warehouse_id)
    _check_same(text, file, manifest)
    if deployment:
        _write(_deployment_of(file), deployment)
    _write(file, text)
    return manifest.warehouse_id


def deploy_project(file: Path) -> None:
    """Write the prefect.yaml that deploys an existing project.

    Raises:
        KpBatchError: there is a prefect.yaml, or the project's file has faults; nothing was
            written.
    """
    read_project(file)
    _write(_deployment_of(file), _new_deployment(file))


def _deployment_of(file: Path) -> Path:
    return file.with_name("prefect.yaml")


def _new_deployment(file: Path) -> str:
    """Return the deployment of a project, for its user to change."""
    path, text = _deployment_of(file), _template("operations", "prefect.yaml")
    text = text.replace(f"project: {PROJECT_FILE}", f"project: {toml_value(file.name)}")
    if path.exists() and path.read_bytes() != text.encode():
        raise KpBatchError(
            f"{printable(str(path))} already exists; leave out --prefect, or move that file, or "
            "name another folder with -o"
        )
    return text


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as written:
        written.write_text(text, "utf-8")


def _check_same(text: str, file: Path, manifest: Manifest) -> None:
    """Refuse a text that would change the settings of an existing warehouse.

    Raises:
        KpBatchError: it would change some.
    """
    project = project_of(file, text, tomllib.loads(text))
    settings = RescoreConfig.model_validate({"project": project, "warehouse": ""}).settings
    changes = setting_changes(manifest.settings, settings)
    if manifest.settings and (reasons := join_reasons(changes)):
        raise KpBatchError(
            f"the warehouse has settings that no project file can hold: {reasons}; no file was "
            "written; run once with other settings, and try again"
        )


def _text(config: RescoreConfig, given: set[str], folder: Path, warehouse_id: str) -> str:
    """Return the template with the given values, and weights and audits after it."""
    values = _OF_A_PROJECT | config.model_dump(mode="json", include=given, exclude_none=True)
    text = Template(_template("operations", PROJECT_FILE)).substitute(
        archive=toml_value([_seen_from(folder, path) for path in config.archive]),
        warehouse=toml_value(_seen_from(folder, shown(config.warehouse))),
        warehouse_id=toml_value(warehouse_id),
        tables="\n".join(line for table in TABLES for line in _explained(table, values)),
    )
    audits = _template("warehouse", "audits.toml")
    if "audits" in given:
        audits = "".join(toml_tables("audits", config.audits.as_json()))
    return "".join((text, *toml_tables("profiles", _changed_profiles(config)), "\n", audits))


def _template(room: str, name: str) -> str:
    return files(f"kp_batch.{room}").joinpath(name).read_text("utf-8")


def _explained(table: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table: each setting's meaning, and its value or a commented example."""
    model = TABLES[table]
    defaults = model().model_dump(mode="json")
    yield f"[{table}]"
    for name, field in model.model_fields.items():
        yield from wrap(field.description or "", initial_indent="# ", **_COMMENT)
        [shown_value, *_] = field.examples or [defaults[name]]
        is_given = name in values
        value = values[name] if is_given else shown_value
        yield f"{'' if is_given else '# '}{name} = {toml_value(value)}"
    yield ""


def _changed_profiles(config: RescoreConfig) -> dict[str, Any]:
    """Return the weights that differ from the built-in ones."""
    built_in = load_profiles().as_json()
    profiles = config.profiles.as_json().items()
    return {name: profile for name, profile in profiles if profile != built_in.get(name)}


def _seen_from(folder: Path, path: str) -> str:
    is_here = is_url(path) or folder == Path()
    return path if is_here else str(Path(path).absolute())
