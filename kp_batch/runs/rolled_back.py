"""Keep a project's file from bringing back what a rollback undid."""

from collections.abc import Iterable, Mapping
from typing import Any

from kp_batch.config import RescoreConfig
from kp_batch.errors import SettingError
from kp_batch.runs.run import Run
from kp_batch.text import printable
from kp_batch.warehouse.reasons import Reason, RolledBack, in_words, setting_changes
from kp_batch.warehouse.run_record import last_done

_OF = {"weights": "profiles", "audit": "audits"}  # settings that change by entry


def check_rolled_back(run: Run) -> None:
    """Refuse a run whose project would bring back what the last run, a rollback, undid.

    Raises:
        SettingError: lines of the file would; it names them.
    """
    project = run.config.project
    if project is None or run.config.ignore_rollback:
        return
    last = last_done(each for each in run.snapshot.runs() if not each.forgets)
    rolled_back = RolledBack.of(last.changes) if last else None
    if last is None or rolled_back is None:
        return
    if lines := bringing_back(run.config, run.published.settings, rolled_back.undone):
        raise SettingError(
            f"rollback {last.run_id} undid what {project.name} would bring back: "
            f"{', '.join(lines)}; change it there, or run once with --ignore-rollback",
            code="rolled_back",
        )


def bringing_back(
    config: RescoreConfig, published: Mapping[str, Any], undone: Iterable[Reason]
) -> list[str]:
    """Return the project's settings that a rollback undid, each with its line.

    Args:
        config: the project's.
        published: the settings since the rollback.
        undone: the changes of the rollback; `old` is what it undid.
    """
    project = config.project
    if project is None:
        return []
    was = [(change.code, change.of, change.old) for change in undone]
    lines: list[str] = []
    for change in setting_changes(published, config.settings):
        if (change.code, change.of, change.new) not in was:
            continue
        setting = _OF.get(change.code, change.code)
        is_left_out = change.new is None or setting not in project.values
        place = "which it leaves out" if is_left_out else project.place(setting, change.of)
        name = f"{change.code} of {printable(change.of)}" if change.of else change.code
        value = "" if change.of else f" {in_words(change.new)}"
        lines.append(f"{name}{value} ({printable(place)})")
    return lines
