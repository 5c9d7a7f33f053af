"""The settings that a warehouse's scores are computed with, and the runs that set them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from kp_batch.errors import WarehouseError
from kp_batch.runs.reasons import dated, weights_by_date
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.reader import connect

_DONE = """
    SELECT run_id, published->'settings' FROM runs WHERE status = 'done' ORDER BY number DESC
"""
_TABLES = ("profiles", "audits")  # settings of which each entry is listed


@dataclass(frozen=True)
class Setting:
    """One setting of a warehouse."""

    name: str  # of `settings.SETTINGS`, or `weights of` a profile, or an `audit`
    value: Any  # a JSON value
    run_id: str  # of the run that set it


def settings(warehouse: Path) -> tuple[Setting, ...]:
    """List the settings in force, the weights by profile, and each audit.

    Raises:
        WarehouseError: there is no warehouse, or no run of it is done.
    """
    with connect(warehouse) as connection:
        rows = connection.execute(_DONE).fetchall()
    if not rows:
        raise WarehouseError(
            f"no run of {shown(warehouse)} is done yet; the first one sets its settings"
        )
    runs = [(run_id, _flat(json.loads(values))) for run_id, values in rows]

    def setter(name: str, value: Any) -> str:
        """The first of the runs that have had this value ever since."""
        unbroken = takewhile(lambda run: run[1].get(name) == value, runs)
        return [run_id for run_id, _ in unbroken][-1]

    return tuple(Setting(name, value, setter(name, value)) for name, value in runs[0][1].items())


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, with each version of a profile and each audit as one."""
    weights = {
        dated(name, begin): version
        for name, profile in values["profiles"].items()
        for begin, version in weights_by_date(profile).items()
    }
    audits = {f"audit {name}": audit for name, audit in values["audits"].items()}
    others = {name: value for name, value in values.items() if name not in _TABLES}
    return others | weights | audits
