"""Bring `last-run.json` of an earlier format to the current one; see `last_run`.

Formats 17 and 18 had the last run, but only the open warnings of the last success; its counts are
also in `runs`. Format 19 has the current form, but one count and one setting have other names.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kp_batch.storage.store import store_at
from kp_batch.warehouse.bucket.location import url_of
from kp_batch.warehouse.earlier_formats import COUNTS, SETTINGS, renamed
from kp_batch.warehouse.last_run import LAST_RUN, LastRuns
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.run_record import RunRecord, last_done
from kp_batch.warehouse.snapshot import published

_HEAD = ("status", "reason", "code", "version", "user", "host", "pid", "step", "run_id")
_WARNINGS = ("unreadable", "cut", "gone", "rejected", "excluded")
Json = Mapping[str, Any]


def convert_last_run(warehouse: Path) -> None:
    """Convert the file of a migrated warehouse, and the object of its bucket; others stay.

    Raises:
        OSError: it cannot be read or written.
    """
    records, here, there = published(warehouse).runs(), b"", b""
    with suppress(FileNotFoundError):
        here = Layout(warehouse).last_run.read_bytes()
    if runs := converted(here, records):
        runs.write(warehouse)
    if not (url := url_of(warehouse)):
        return
    with suppress(FileNotFoundError):
        there, _ = store_at(url).read(LAST_RUN)
    if runs := converted(there, records):
        runs.store(url)


def converted(content: bytes, records: Sequence[RunRecord]) -> LastRuns | None:
    """Return the last runs of a file of an earlier format; None for any other file.

    Args:
        content: the file, which anybody may have written.
        records: the rows of `runs`.
    """
    if LastRuns.of(content).last_run:
        return None
    try:
        values = json.loads(content)
        runs = _of_19(values) if "last_run" in values else _of_17(values, last_done(records))
        read = LastRuns.of(json.dumps(runs).encode())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return read if read.last_run else None


def _of_19(values: Json) -> Json:
    return {name: run and _with_new_names(run) for name, run in values.items()}


def _with_new_names(run: Json) -> Json:
    counts = run["counts"] and renamed(run["counts"], COUNTS)
    return {**run, "counts": counts, "rolled_back": _rolled_back(run["rolled_back"])}


def _rolled_back(values: Json | None) -> Json | None:
    if values is None:
        return None
    undone = [{**x, "code": SETTINGS.get(x["code"], x["code"])} for x in values["undone"]]
    return {**values, "undone": undone}


def _of_17(values: Json, done: RunRecord | None) -> Json:
    last = {name: values[name] for name in _HEAD}
    last |= {"started_at": values["began"], "finished_at": values["ended"]}
    success = values["success"] and _success(values["success"], done)
    if success and success["finished_at"] == last["finished_at"]:  # it is the last run
        last = success = {**success, **last}
    return {"last_run": last, "last_success": success}


def _success(values: Json, done: RunRecord | None) -> dict[str, Any]:
    """Return the last success, whose beginning is unknown.

    Args:
        values: what the file has of it.
        done: the last run that is done; what ended later had no work to do, or was a forget.
    """
    warnings, rolled_back = values["stands"], _rolled_back(values["rolled_back"])
    counts = done.counts if done else None
    if done and counts:
        counts = counts if done.run_id == values["run_id"] else counts.without_work
        counts = replace(counts, **{name: warnings[name] for name in _WARNINGS})
    warned = {"severity": "warn", "allowed": False}
    return {
        "status": values["status"],
        "run_id": values["run_id"],
        "started_at": values["ended"],
        "finished_at": values["ended"],
        "user": rolled_back and rolled_back["user"],
        "counts": counts and asdict(counts),
        "audits": [{"name": x, "rows": y, **warned} for x, y in warnings["audits"].items()],
        "newest_trace": warnings["newest_trace"],
        "rolled_back": rolled_back,
    }
