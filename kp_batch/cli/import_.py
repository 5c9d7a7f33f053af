"""`import`, `import-formats` and `import-forget`: other systems' traces in an archive."""

import os
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import (
    FaultySettingsError,
    TableCommand,
    complete_formats,
    given,
    json_line,
    json_option,
    project_option,
    the_project,
)
from kp_batch.log import echo, echo_result
from kp_batch.storage.urls import is_url

if TYPE_CHECKING:
    from kp_batch.faults import Place
    from kp_batch.imports.import_limits import ImportLimits

_RULES = """\
# Rules to start from: what counts as success, and the confidence and the domain of each trace.
# agent_id = "FIELD"               # the agent's name, if the format has no field for it
# created_at = "end"               # the end of the task, not its start; or "field:NAME", or a time
# recovery = "after_tool_error"    # the first thought after a failed tool recovers from an error
# trace = "session"                # a coding agent's whole session is one trace, not each turn

[success]
score = "NAME"                     # or, instead of both lines, always = true
at_least = 1.0                     # or at_most, if lower is better

[confidence]
score = "NAME"                     # or, instead of all three lines, always = 0.8
min = 0
max = 1

[task_domain]
from = "FIELD"
map = { VALUE = "finance" }        # without it, the values are the domains
otherwise = "default"              # without it, traces with other values are refused
"""


class _FolderOrUrl(click.Path):
    """A folder, or the URL of one in a bucket."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """See `click.ParamType`."""
        return value if is_url(str(value)) else super().convert(value, param, ctx)


def _limits() -> "type[ImportLimits]":
    from kp_batch.imports.import_limits import ImportLimits

    return ImportLimits


@kp_batch.command("import", cls=TableCommand, table=_limits)
@click.argument(
    "arguments",
    metavar="[FORMAT SOURCE...]",
    nargs=-1,
    shell_complete=complete_formats,
)
@click.option(
    "-o",
    "--output",
    "archive",
    metavar="ARCHIVE",
    type=_FolderOrUrl(file_okay=False),
    help="The archive's folder, or its URL in a bucket. It gets one file per day.",
)
@click.option(
    "--rules",
    "rules_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A TOML file with rules for success, confidence, domain and more.",
)
@click.option("--success", help="score:NAME:AT_LEAST, or always.")
@click.option("--confidence", help="score:NAME:MIN:MAX, or a number from 0 to 1.")
@click.option("--domain", help="The field with the domain, or =DOMAIN for all traces.")
@click.option(
    "--agent-id",
    metavar="FIELD",
    help="The field with the agent's name, instead of the format's usual one.",
)
@click.option(
    "--created-at", metavar="TIME", help="start, end, field:NAME, or one time for all traces."
)
@project_option
@json_option
def import_(  # noqa: PLR0913 (each is an option)
    arguments: Sequence[str],
    archive: str | None,
    rules_path: Path | None,
    *,
    success: str | None,
    confidence: str | None,
    domain: str | None,
    agent_id: str | None,
    created_at: str | None,
    as_json: bool,
    **limits: str | None,
) -> None:
    """Import other systems' traces into an archive.

    `kp-batch import-formats` lists the FORMATs. auto uses the archive's format, or detects one.
    Without arguments, run all imports of the project.
    """
    if _is_bare():
        _import_all(as_json=as_json)
        return
    if not arguments:
        raise click.UsageError("Missing argument 'FORMAT SOURCE...'.")
    if archive is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    from kp_batch.imports.import_config import ImportConfig
    from kp_batch.imports.summary import as_text

    format_name, *sources = arguments
    if not sources:
        raise click.UsageError("Missing argument 'SOURCE...'.")
    source = {"format": format_name, "sources": sources, "archive": archive, "rules": rules_path}
    config = ImportConfig.checked({**source, **given(limits)}, _named, error=FaultySettingsError)
    parsed = (
        ("success", success, _success),
        ("confidence", confidence, _confidence),
        ("task_domain", domain, _domain),
    )
    tables: dict[str, Any] = {name: parse(text) for name, text, parse in parsed if text is not None}
    tables |= given({"agent_id": agent_id or None, "created_at": created_at})
    done = config.run(tables)
    echo_result(json_line(done) if as_json else as_text(done, archive))


def _named(place: "Place") -> str:
    from kp_batch.settings import field_of, option_of

    return "FORMAT" if field_of(place) == "format" else option_of(place)


@kp_batch.command("import-formats")
def import_formats() -> None:
    """List the formats of import, with rules to start from."""
    from kp_batch.conversion.formats import FORMATS

    for form in FORMATS.values():
        echo(f"# {form.name:<16}{form.contents}")
    echo(f"\n{_RULES}", nl=False)


@kp_batch.command("import-forget")
@click.argument("archive", type=_FolderOrUrl(file_okay=False))
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--source",
    "sources",
    metavar="PATH",
    multiple=True,
    help="Remove what came only from this file or folder; may be repeated.",
)
@json_option
def import_forget(
    archive: str, ids: tuple[str, ...], sources: tuple[str, ...], *, as_json: bool
) -> None:
    """Remove imported traces and their records from ARCHIVE, for good."""
    if not (ids or sources):
        raise click.UsageError("Missing argument '[ID]...', or option '--source'.")
    from kp_batch.imports.forgetting import forget
    from kp_batch.imports.summary import forgotten_text

    forgotten = forget(archive, ids=ids, files=sources)
    echo_result(json_line(forgotten) if as_json else forgotten_text(forgotten, archive))


def _is_bare() -> bool:
    """Whether the command has no arguments, so that it runs the project's imports."""
    context = click.get_current_context()
    given = {name for name, value in context.params.items() if value not in (None, ())}
    return given <= {"as_json"}


def _import_all(*, as_json: bool) -> None:
    from kp_batch.imports.import_config import imports_of, read_imports
    from kp_batch.imports.summary import as_text

    # All settings first: their faults are reported before any work.
    settings = read_imports(imports_of(the_project()))
    done = [(each.run(), each.archive) for each in settings]
    texts = (as_text(imported, archive) for imported, archive in done)
    echo_result(json_line([imported for imported, _ in done]) if as_json else "\n".join(texts))


def _success(text: str) -> dict[str, Any]:
    if text == "always":
        return {"always": True}
    kind, _, rest = text.partition(":")
    score, _, limit = rest.rpartition(":")
    if kind != "score" or not score or not _are_numbers(limit):
        raise _wrong("score:NAME:AT_LEAST or always", text, "--success")
    return {"score": score, "at_least": limit}


def _confidence(text: str) -> dict[str, Any]:
    if _are_numbers(text) and 0 <= float(text) <= 1:
        return {"always": text}
    kind, _, rest = text.partition(":")
    score, *bounds = rest.rsplit(":", 2)
    if kind != "score" or not score or len(bounds) != 2 or not _are_numbers(*bounds):
        raise _wrong("score:NAME:MIN:MAX or a number from 0 to 1", text, "--confidence")
    return dict(zip(("score", "min", "max"), (score, *bounds), strict=True))


def _domain(text: str) -> dict[str, Any]:
    if text in ("", "="):
        raise _wrong("a field, or =DOMAIN for all", text, "--domain")
    return {"otherwise": text[1:]} if text.startswith("=") else {"from": text}


def _are_numbers(*texts: str) -> bool:
    try:
        return all(isfinite(float(text)) for text in texts)
    except ValueError:
        return False


def _wrong(wanted: str, text: str, option: str) -> click.BadParameter:
    return click.BadParameter(f"{wanted}, got {text!r}", param_hint=option)
