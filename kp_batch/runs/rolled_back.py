"""Keeps a project's file from bringing back what a rollback undid."""

from collections.abc import Iterable
from typing import Any

from kp_batch.config import RescoreConfig
from kp_batch.errors import SettingError
from kp_batch.project import load_project
from kp_batch.runs.reasons import Reason, in_words, weights_by_date
from kp_batch.runs.record import last_done
from kp_batch.runs.run import Run
from kp_batch.settings import SETTINGS
from kp_batch.text import printable

_OF = {"weights": "profiles", "audit": "audits"}  # the settings of which one entry differs


def check_rolled_back(run: Run) -> None:
    """Refuse a run under a project that would bring back what the last run, a rollback, undid.

    Raises:
        SettingError: it names the lines of the file that would.
    """
    last = None if run.config.accept or not run.config.project else last_done(run.snapshot.runs())
    if last is None or not any(change["code"] == "rollback" for change in last.changes):
        return
    if lines := bringing_back(run.config, [Reason(**change) for change in last.changes]):
        raise SettingError(
            f"rollback {last.run_id} undid what {run.config.project} would bring back: "
            f"{', '.join(lines)}; change it there, or, if it is right, run once with --accept",
            code="rolled_back",
        )


def bringing_back(config: RescoreConfig, undone: Iterable[Reason]) -> list[str]:
    """The settings of a project that are those which a rollback undid, each with its line.

    Args:
        config: of the project.
        undone: the changes of the rollback; `old` is what it undid.
    """
    if config.project is None:
        return []
    project = load_project(config.project)
    lines: list[str] = []
    for change in undone:
        setting = _OF.get(change.code, change.code)
        if setting not in SETTINGS or not _has_again(config.settings[setting], change):
            continue
        number = project.line_of(setting, change.of)
        where = f"line {number}" if number else "which it leaves out"
        name = f"{change.code} of {printable(change.of)}" if change.of else change.code
        value = "" if change.of else f" {in_words(change.old)}"
        lines.append(f"{name}{value} ({where})")
    return lines


def _has_again(setting: Any, change: Reason) -> bool:
    """Whether a setting is as it was before a rollback, where that changed it."""
    if change.of is None:
        return setting == change.old
    entry = setting.get(change.of)
    if change.code == "audit":
        return entry == change.old
    return (change.old in weights_by_date(entry).values()) if change.old else entry is None
