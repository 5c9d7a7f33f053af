"""Tells what a warehouse's scores are computed with, and which run set it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kp_batch.errors import WarehouseError
from kp_batch.runs.reasons import dated, weights_by_date
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.reader import connect

_DONE = """
    SELECT run_id, published->'settings' FROM runs WHERE status = 'done' ORDER BY number DESC
"""


_TABLES = ("profiles", "audits")  # settings that are told by the names in them


@dataclass(frozen=True)
class Setting:
    """One setting of a warehouse."""

    name: str  # of `config.SETTINGS`, or `weights of` a profile, or an `audit`
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
    runs = [(run_id, _flat(json.loads(left))) for run_id, left in rows]
    found: list[Setting] = []
    for name, value in runs[0][1].items():
        # The first run of those that have had this value ever since.
        since = next((row for row, (_, each) in enumerate(runs) if each.get(name) != value), None)
        found.append(Setting(name, value, runs[-1 if since is None else since - 1][0]))
    return tuple(found)


def _flat(left: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run left; each version of a profile is one, and each audit."""
    weights = {
        dated(name, begin): each
        for name, profile in left["profiles"].items()
        for begin, each in weights_by_date(profile).items()
    }
    audits = {f"audit {name}": each for name, each in left["audits"].items()}
    others = {name: each for name, each in left.items() if name not in _TABLES}
    return others | weights | audits
