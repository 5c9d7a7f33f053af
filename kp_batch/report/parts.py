"""The parts of clear changes and differences; only these are asked of the catalog."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import duckdb
import polars as pl

from kp_batch.duck import SQL, frame_of, identifier, literal, sql
from kp_batch.report.data import Parts, ReportData
from kp_batch.report.kinds.trends import clear_changes
from kp_batch.report.kinds.units import UNITS, clear_differences
from kp_batch.report.labels import ALL
from kp_batch.report.periods import step_of

_ASKED = pl.Schema({"domain": pl.String, "value": pl.String, "begins": pl.Date, "unit": pl.String})
_Asked = tuple[str, str, object, str | None]  # label, value of the key, period, and unit


def with_parts(connection: duckdb.DuckDBPyConnection, data: ReportData) -> ReportData:
    """Add the parts of what the findings may report, as in the questions; they add up to it.

    If novelty is the largest part of a domain's change, its parts have two more numbers:
    `cache_share` and `cache_share_before`, the mean share of the domain in its own cache.
    """
    parts = _changes(connection, data) | _differences(connection, data)
    return replace(data, parts=parts)


def _changes(connection: duckdb.DuckDBPyConnection, data: ReportData) -> dict[Any, Parts]:
    parts: dict[Any, Parts] = {}
    for key, values in (("everything", {ALL: "all"}), ("task_domain", data.names)):
        asked = [
            (label, value, row["begins"], None)
            for label, value in values.items()
            for row in clear_changes(data, label)
        ]
        names = {
            "column": identifier(key),
            "key": literal(key),
            "period": literal(data.period),
            "step": literal(step_of(data.period)),
        }
        found = _found(connection, "parts_of_changes", asked, **names)
        own = {(row.pop("domain"), row.pop("begins")): row for row in found}
        of_domains = asked if key != "everything" else []
        novel = [each for each in of_domains if is_by_novelty(own[each[0], each[2]])]
        for row in _found(connection, "cache_shares", novel, **names):
            own[row.pop("domain"), row.pop("begins")] |= row
        parts |= own
    return parts


def is_by_novelty(parts: Parts) -> bool:
    """Whether novelty is the largest part."""
    return max(parts, key=lambda name: abs(parts[name] or 0)) == "novelty"


def _differences(connection: duckdb.DuckDBPyConnection, data: ReportData) -> dict[Any, Parts]:
    parts: dict[Any, Parts] = {}
    for frame, column in UNITS.items():
        asked = [
            (label, value, None, row["unit"])
            for label, value in data.names.items()
            for row in clear_differences(data, label, frame)
        ]
        found = _found(connection, "parts_of_differences", asked, unit=literal(column))
        parts |= {(row.pop("domain"), frame, row.pop("unit")): row for row in found}
    return parts


def _found(
    connection: duckdb.DuckDBPyConnection, name: str, asked: Iterable[_Asked], **values: SQL
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of SQL about what is asked; none if nothing is."""
    rows = pl.DataFrame([*asked], _ASKED, orient="row")
    if rows.is_empty():
        return
    connection.register("asked", rows.to_arrow())
    yield from frame_of(connection.sql(sql(__name__, f"{name}.sql", **values))).to_dicts()
