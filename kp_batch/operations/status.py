"""The status of a warehouse: its last run, its last success, open warnings.

This reads a few small files or objects and writes nothing, so a monitor can run it every minute.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from kp_batch.errors import KpBatchError, SettingError, WarehouseError
from kp_batch.html import Displayed
from kp_batch.project import ProjectFile
from kp_batch.rendering import Facts, Head, Part
from kp_batch.storage.store import answered_within, store_at
from kp_batch.text import age, count_of, format_duration, one_line, printable
from kp_batch.warehouse.bucket.location import CopyRecord, shown, url_of
from kp_batch.warehouse.last_run import LastRuns
from kp_batch.warehouse.lock import holder, noticed_writer
from kp_batch.warehouse.manifest import (
    DAMAGED,
    Manifest,
    check_manifest,
    check_tables,
    no_warehouse,
    read_manifest,
    read_there,
)
from kp_batch.warehouse.reasons import RolledBack
from kp_batch.warehouse.run_result import GOOD, RunResult, later

_ATTEMPTS, _BETWEEN_S = 5, 0.1  # see `_resolved`
_LATE = "check how the last run ended, and whether the nightly job starts"
_DRY = "check whether the archive still receives traces, and whether runs reject them"
_SKEW_S = 300.0  # the tolerated difference between the clocks of two machines
TIMEOUT_S = 30.0  # until a bucket, or a disk behind a network, has answered
# For a warehouse without last-run.json, of an earlier kp_batch or a copy.
_LAST_DONE = """
    SELECT
        strftime(started_at, '%Y-%m-%dT%H:%M:%S+00:00'),
        strftime(finished_at, '%Y-%m-%dT%H:%M:%S+00:00'),
        run_id,
        changes,
        "user"
    FROM runs WHERE status = 'done' ORDER BY number DESC LIMIT 1
"""


@dataclass(frozen=True)
class WarehouseStatus(Displayed):
    """The status of a warehouse."""

    warehouse: str
    is_new: bool  # whether there was no run yet
    last_run: RunResult | None  # null: none was made, or it is unknown, as in a copy
    last_success: RunResult | None  # the last run that was done or had nothing to do
    age_s: float | None  # seconds since the end of the last success
    trace_age_s: float | None  # seconds since the newest trace; null: none is known
    free_bytes: int | None  # free space on the disk; null for a bucket
    # Lines of the project that would bring back what a rollback undid: the next run is refused.
    brings_back: tuple[str, ...] = ()

    def _parts(self) -> Iterator[Part]:
        yield Head(printable(self.warehouse))
        yield Facts(status_facts(self, self._looked_at()))

    def _looked_at(self) -> datetime:
        """When the status was read, from the age of the last success; now, without one."""
        success = self.last_success
        if success is None or success.finished_at is None or self.age_s is None:
            return datetime.now(UTC)
        return datetime.fromisoformat(success.finished_at) + timedelta(seconds=self.age_s)


def status_of(
    warehouse: Path,
    now: datetime,
    warehouse_id: str | None = None,
    project: ProjectFile | None = None,
) -> WarehouseStatus:
    """Return the status of a warehouse.

    Args:
        warehouse: the folder of the tables, or a bucket's copy.
        now: the time, in UTC.
        warehouse_id: the id that it must have; None for any.
        project: the project of the next run.

    Raises:
        WarehouseError: there is no warehouse or another one, or no answer within `TIMEOUT_S`.
    """
    try:
        return answered_within(
            TIMEOUT_S, partial(_looked_at, warehouse, now, warehouse_id, project)
        )
    except WarehouseError:
        raise
    except (OSError, KpBatchError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise WarehouseError(
            f"{shown(warehouse)} cannot be reached: {one_line(reason)}", code="unreachable"
        ) from error


def _looked_at(
    warehouse: Path, now: datetime, warehouse_id: str | None, project: ProjectFile | None
) -> WarehouseStatus:
    url = url_of(warehouse)
    find = partial(_of_bucket, url) if url else _of_folder
    found = find(warehouse, warehouse_id)
    success, newest = found.success, _newest_trace(warehouse, found, now)
    return WarehouseStatus(
        warehouse=shown(warehouse),
        is_new=found.last_run is None and "runs" not in found.published.tables,
        last_run=found.last_run,
        last_success=success,
        age_s=_seconds_since(success.finished_at if success else None, now),
        trace_age_s=_seconds_since(newest, now),
        free_bytes=None if url else shutil.disk_usage(warehouse).free,
        brings_back=_brought_back(warehouse, found, project),
    )


def _seconds_since(moment: str | None, now: datetime) -> float | None:
    return (now - datetime.fromisoformat(moment)).total_seconds() if moment else None


def _newest_trace(warehouse: Path, found: "_Found", now: datetime) -> str | None:
    """Return the time of the newest trace: that of the last success, or from the tables."""
    success = found.success
    if success is None or url_of(warehouse) or success.newest_trace:
        return success.newest_trace if success else None
    from kp_batch.warehouse.snapshot import published

    newest = published(warehouse).newest_trace(now)
    return newest.isoformat() if newest else None


def _brought_back(warehouse: Path, found: "_Found", project: ProjectFile | None) -> tuple[str, ...]:
    """Return lines of a project that bring back what the last success, a rollback, undid."""
    rolled_back = found.success.rolled_back if found.success else None
    if project is None or rolled_back is None or not rolled_back.undone:
        return ()
    from kp_batch.config import RescoreConfig
    from kp_batch.runs.rolled_back import bringing_back

    try:
        config = RescoreConfig.model_validate({"project": project, "warehouse": warehouse})
        return (*bringing_back(config, found.published.settings, rolled_back.undone),)
    except (SettingError, *DAMAGED):  # the next run reports it; anybody may write last-run.json
        return ()


def check_age(status: WarehouseStatus, most: timedelta | None) -> None:
    """Refuse a warehouse whose last success is older than `most`, if that is given.

    Raises:
        WarehouseError: it is older, or there is none.
    """
    if most is None:
        return
    if status.age_s is None:
        raise WarehouseError(f"{status.warehouse} has no successful run yet; {_LATE}", code="late")
    _check_clock("the last success", status.age_s, status.warehouse)
    if status.age_s > most.total_seconds():
        raise WarehouseError(
            f"the last success in {status.warehouse} is {age(status.age_s)} ago, which is more "
            f"than {format_duration(most)}; {_LATE}",
            code="late",
        )


def check_trace_age(status: WarehouseStatus, most: timedelta | None) -> None:
    """Refuse a warehouse whose newest trace is older than `most`, if that is given.

    Raises:
        WarehouseError: it is older, or there is none.
    """
    if most is None:
        return
    if status.trace_age_s is None:
        raise WarehouseError(
            f"{status.warehouse} has no trace with a past date; {_DRY}",
            code="late",
        )
    _check_clock("the newest trace", status.trace_age_s, status.warehouse)
    if status.trace_age_s > most.total_seconds():
        raise WarehouseError(
            f"the newest trace in {status.warehouse} is {age(status.trace_age_s)} old, which is "
            f"more than {format_duration(most)}; {_DRY}",
            code="late",
        )


def check_last_run(status: WarehouseStatus) -> None:
    """Refuse a warehouse whose last run ended without success, unless it is running.

    Raises:
        WarehouseError: it did.
    """
    last = status.last_run
    if last is None or last.status in {*GOOD, "running"}:
        return
    reason = f": {printable(last.reason)}" if last.reason else ""
    raise WarehouseError(
        f"the last run in {status.warehouse} did not succeed ({_words(last.status)}){reason}; fix "
        "that, and run again",
        code="not_done",
    )


def _check_clock(what: str, age_s: float, warehouse: str) -> None:
    if age_s < -_SKEW_S:
        raise WarehouseError(
            f"{what} in {warehouse} is dated {age(-age_s)} in the future, so its age is unknown; "
            "correct the clock of this machine, or of the one that wrote it, and run again",
            code="late",
        )


@dataclass(frozen=True)
class _Found:
    """What the files or objects of a warehouse contain."""

    published: Manifest  # empty if nothing is published
    last_run: RunResult | None
    success: RunResult | None


def _of_folder(warehouse: Path, warehouse_id: str | None) -> _Found:
    manifest, (last, success) = read_manifest(warehouse), LastRuns.read(warehouse)
    check_manifest(manifest, warehouse, warehouse_id)
    if not warehouse.is_dir():
        raise WarehouseError(
            f"{warehouse} cannot be reached: there is no such folder; check its path and its disk"
        )
    if not (manifest or last):
        raise no_warehouse(str(warehouse))
    if manifest:
        check_tables(manifest, warehouse)
    success = success or (_last_done(warehouse) if manifest else None)
    return _Found(manifest or Manifest({}, {}), _resolved(last, warehouse), success)


def _resolved(last: RunResult | None, warehouse: Path) -> RunResult | None:
    """Return the last run, which is running only while its process has the lock.

    It releases the lock just before it records how it ended, so this checks several times.
    """
    if last is None or last.status != "running":
        return last
    for _ in range(_ATTEMPTS):
        if (holder(warehouse) or {}).get("pid") == last.pid:
            return last
        time.sleep(_BETWEEN_S)
        now = LastRuns.read(warehouse).last_run
        if now and now != last:
            return _resolved(now, warehouse)
    return replace(last, status="killed")


def _of_bucket(url: str, copy: Path, warehouse_id: str | None) -> _Found:
    """Read three objects, and this machine's copy, which has more about its own runs."""
    there, here, manifest = LastRuns.in_bucket(url), LastRuns.read(copy), read_there(copy)
    check_manifest(manifest, copy, warehouse_id)
    runs = [each for each in (there.last_run, here.last_run) if each]
    if not (manifest or runs):
        raise no_warehouse(url)
    last = max(runs, key=lambda each: each.started_at, default=None)
    writer = noticed_writer(store_at(url))
    elsewhere = _elsewhere(copy, writer) if writer else None
    if elsewhere is None or (
        last and (last.finished_at or last.started_at) >= elsewhere.started_at
    ):
        elsewhere = _resolved(last, copy)
    success = later(there.last_success, here.last_success)
    return _Found(manifest or Manifest({}, {}), elsewhere, success)


def _elsewhere(copy: Path, writer: Mapping[str, Any]) -> RunResult | None:
    """Return the run of another machine, from its notice, which also remains after a kill."""
    if writer.get("copy") == CopyRecord.of(copy).copy_id:
        return None
    try:  # anybody may have written it
        began, pid = datetime.fromisoformat(writer["since"]).astimezone(UTC), int(writer["pid"])
    except (ValueError, TypeError, LookupError):
        return None
    started_at, host = began.isoformat(), str(writer.get("host"))
    return RunResult(status="running", started_at=started_at, host=host, pid=pid)


def _last_done(warehouse: Path) -> RunResult | None:
    from kp_batch.warehouse.reader import connect

    with connect(warehouse) as connection:
        done = connection.execute(_LAST_DONE).fetchall()
    for began, ended, run_id, changes, user in done:
        return RunResult(
            status="done",
            started_at=began,
            finished_at=ended,
            user=user,
            run_id=run_id,
            rolled_back=RolledBack.of(json.loads(changes)),
        )
    return None


def status_text(status: WarehouseStatus, now: datetime) -> str:
    """Format the status of a warehouse for a terminal."""
    rows = dict(status_facts(status, now))
    longest = max(map(len, rows))
    return "\n".join(f"{name:{longest}}  {text}" for name, text in rows.items())


def status_facts(status: WarehouseStatus, now: datetime) -> list[tuple[str, str]]:
    """Return the status of a warehouse as names and texts."""
    rows = {"last run": _last_text(status, now), "last success": "none yet"}
    if (success := status.last_success) and status.age_s is not None:
        rows["last success"] = f"{_ago(status.age_s)}, {_success_text(success)}"
        rows["open warnings"] = _open_warnings(success)
        if status.trace_age_s is not None:
            at = now - timedelta(seconds=status.trace_age_s)
            rows["newest trace"] = f"{_ago(status.trace_age_s, 'old')}, of {at:%Y-%m-%d %H:%M} UTC"
    if status.brings_back:
        rows["next run"] = (
            "will be refused: the project would bring back what the rollback undid, "
            f"{', '.join(status.brings_back)}; change it there, or run once with --ignore-rollback"
        )
    if status.free_bytes is not None:
        rows["free"] = f"{status.free_bytes / 1e9:,.1f} GB of the disk"
    return [(name, printable(text)) for name, text in rows.items()]


def _last_text(status: WarehouseStatus, now: datetime) -> str:
    last, success = status.last_run, status.last_success
    if status.is_new:
        return "no run was made yet"
    if last is None:
        return "unknown, as in a copy, or after a run of an earlier kp-batch"
    is_rollback = success and success.rolled_back and success.run_id == last.run_id
    return f"{'rollback ' if is_rollback else ''}{_last_run_text(last, now)}"


def _ago(seconds: float, word: str = "ago") -> str:
    return f"{age(-seconds)} in the future" if seconds < -_SKEW_S else f"{age(seconds)} {word}"


def _last_run_text(last: RunResult, now: datetime) -> str:
    moment = datetime.fromisoformat(last.finished_at or last.started_at)
    ago = _ago((now - moment).total_seconds())
    by = f"by {last.user} on {last.host}" if last.user else f"on {last.host}"
    if last.status == "running":
        unless = "" if last.user else ", unless it was killed there"
        return f"running since {last.started_at}{_at(last)}, {by}, process {last.pid}{unless}"
    if last.status == "killed":
        return f"killed{_at(last)}, begun {ago}, {by}"
    named = f", run {last.run_id}" if last.run_id else ""
    return f"{_words(last.status)} {ago}, {by}{named}" + (f": {last.reason}" if last.reason else "")


def _success_text(success: RunResult) -> str:
    if (undone := success.rolled_back) is None:
        return _words(success.status)
    return f"rolled back by {success.user} from run {undone.from_run} to run {undone.to_run}"


def _at(last: RunResult) -> str:
    return f" in the step {last.step}" if last.step else ""


def _words(status: str) -> str:
    return status.replace("_", " ")


def _open_warnings(success: RunResult) -> str:
    """Return the open warnings since the last success, which do not fail a run."""
    if (counts := success.counts) is None:
        return "unknown until the next run"
    cut = f" ({counts.cut:,} cut)" if counts.cut else ""
    listed = [
        (counts.unreadable, "file", f" unreadable{cut}"),
        (counts.gone, "file", " gone"),
        (counts.excluded, "file", " excluded with traces that stay"),
        (counts.rejected, "row", " rejected"),
    ]
    texts = [f"{count_of(count, noun)}{how}" for count, noun, how in listed if count]
    audits = [
        f"audit {each.name}: {count_of(each.rows, 'row')}" for each in success.audits if each.rows
    ]
    return ", ".join([*texts, *audits]) or "nothing"
