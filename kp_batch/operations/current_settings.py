"""The settings that a warehouse's scores are computed with, and the runs that set them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

from kp_batch.columns import Rows
from kp_batch.errors import WarehouseError
from kp_batch.project import ProjectFile
from kp_batch.rendering import Head, Part, Row, Table
from kp_batch.text import one_line, padded, printable, shortened, width
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.reasons import complete, dated, in_words, weights_by_date

_VALUE = 73  # characters, as many as the weights of a profile take
_DONE = """
    SELECT run_id, published->'settings' FROM runs WHERE status = 'done' ORDER BY number DESC
"""
_TABLES = ("profiles", "audits")  # settings whose entries are listed one by one


class CurrentSettings(Rows):
    """The settings of a warehouse's next run, and the run that set each.

    A name is one of `settings.Settings`, `weights of` a profile, or an `audit`.
    """

    __slots__ = ()
    names = ("name", "value", "run_id", "source")

    def _parts(self) -> Iterator[Part]:
        yield Head("settings of the next run")
        yield Table(_table(self))


def settings(warehouse: Path, project: ProjectFile | None = None) -> CurrentSettings:
    """List the settings of the next run, the weights of each profile, and each audit.

    Args:
        warehouse: the folder of the tables.
        project: the project; without one, the settings are those of the last run.

    Raises:
        WarehouseError: there is no warehouse, or, without a project, no run succeeded.
        KpBatchError: the project's file has faults.
    """
    with connect(warehouse) as connection:
        rows = connection.execute(_DONE).fetchall()
    if not rows and not project:
        raise WarehouseError(
            f"{shown(warehouse)} has no successful run yet; the first one sets its settings: "
            "kp-batch run ARCHIVE"
        )
    runs = [(run_id, _flat(complete(json.loads(values)))) for run_id, values in rows]

    def setter(name: str, value: Any) -> str | None:
        """Return the first of the runs that have had this value ever since."""
        unbroken = takewhile(lambda run: run[1].get(name) == value, runs)
        return next(reversed([run_id for run_id, _ in unbroken]), None)

    current = _of_project(project) if project else _of_warehouse(runs[0][1])
    return CurrentSettings(
        {"name": name, "value": value, "run_id": setter(name, value), "source": source}
        for name, value, source in current
    )


def _of_warehouse(values: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for name, value in values.items():
        yield name, value, "warehouse"


def _of_project(project: ProjectFile) -> Iterator[tuple[str, Any, str]]:
    """Yield the settings of a project's runs, and whether its file has them."""
    from kp_batch.config import RescoreConfig, defaults

    values = _flat(RescoreConfig.model_validate({"warehouse": "", "project": project}).settings)
    default = _flat(defaults())
    for name, value in values.items():
        is_given = name in project.values or (name in default and default[name] != value)
        yield name, value, "project" if is_given or name not in default else "default"


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, with an entry for each version of a profile and each audit."""
    weights = {
        dated(name, begin): version
        for name, profile in values["profiles"].items()
        for begin, version in weights_by_date(profile).items()
    }
    audits = {f"audit {name}": audit for name, audit in values["audits"].items()}
    others = {name: value for name, value in values.items() if name not in _TABLES}
    return others | weights | audits


def settings_text(settings: Iterable[Mapping[str, Any]]) -> str:
    """Format the settings of a warehouse for a terminal."""
    rows = [[*row.values()] for row in _table(settings)]
    widths = [max(width(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join((*map(padded, row, widths), row[-1])) for row in rows)


def _table(settings: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each setting of a warehouse."""
    return [
        {
            "setting": printable(setting["name"]),
            "value": _value(setting["value"]),
            "from": setting["source"],
            "set": f"since run {run_id}"
            if (run_id := setting["run_id"])
            else "from the next run on",
        }
        for setting in settings
    ]


def _value(value: Any) -> str:
    if isinstance(value, dict) and "sql" in value:
        audit = cast("dict[str, str]", value)
        return shortened(f"{audit['severity']}: {one_line(audit['sql'])}", _VALUE)
    if isinstance(value, dict):
        weights = cast("dict[str, float]", value)
        return ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
    return printable(in_words(value))
