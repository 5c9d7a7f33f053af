"""`sweep`: what other caches and thresholds would do to the scores."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kp_batch.cli import kp_batch
from kp_batch.cli.options import (
    FaultySettingsError,
    TableCommand,
    given,
    json_line,
    json_option,
    warehouse_option,
)
from kp_batch.log import echo

if TYPE_CHECKING:
    from kp_batch.operations.sweep_values import SweepValues


def _values() -> "type[SweepValues]":
    from kp_batch.operations.sweep_values import SweepValues

    return SweepValues


@kp_batch.command(cls=TableCommand, table=_values)
@warehouse_option
@json_option
def sweep(warehouse: Path, *, as_json: bool, **values: Any) -> None:
    """Show the effect of other caches and thresholds.

    Changes nothing. Compares every combination of the given values with the current settings. Other
    settings stay. If the archive has recorded scores, a column shows how many of them each
    combination reproduces.
    """
    from kp_batch.operations.sweep import sweep as sweep_of

    wanted = _values().checked(given(values), error=FaultySettingsError)
    result = sweep_of(warehouse, wanted)
    echo(json_line(result) if as_json else str(result))
