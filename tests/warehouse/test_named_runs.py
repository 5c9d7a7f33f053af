"""A run is named by a time, too: the last one that was done by then."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from kp_batch.errors import WarehouseError
from kp_batch.warehouse.run_record import RunRecord
from kp_batch.warehouse.snapshot import PublishedSnapshot

TWO = datetime(2026, 3, 1, 2, tzinfo=UTC)
US, HOUR, DAY = timedelta(microseconds=1), timedelta(hours=1), timedelta(days=1)
# In the order of publication: what each is, and when it ended. The clock was set back after "c".
ENDS = {
    "a": ("done", TWO - DAY),
    "b": ("done", TWO),
    "x": ("failed", TWO + HOUR),
    "c": ("done", TWO + 2 * DAY),
    "d": ("done", TWO + DAY),
    "e": ("done", TWO + DAY),
}


def run(name: str, status: str, ended: datetime, number: int) -> RunRecord:
    return RunRecord(
        run_id=f"20260301T020000Z-{name * 6}",
        started_at=ended,
        finished_at=ended,
        status=status,
        reason=None,
        note=None,
        user="ana",
        config={},
        changes=[],
        counts=None,
        seconds={},
        versions={},
        fingerprints={},
        published={"number": number, "settings": {}},
        audits=(),
    )


def found(monkeypatch: pytest.MonkeyPatch, name: str, ends: Sequence[str] = tuple(ENDS)) -> str:
    records = [run(each, *ENDS[each], number) for number, each in enumerate(ends)]
    monkeypatch.setattr(PublishedSnapshot, "runs", lambda _: records[::-1])
    [record] = PublishedSnapshot(Path("w")).find_runs(name)
    return record.run_id[-1]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("2026-03-01T02:00", "b"),
        ("2026-03-01 02:00:00Z", "b"),
        ("2026-03-01t03:00+01:00", "b"),
        ("2026-02-28T21:00:00.000000-05:00", "b"),
        ("2026-03-01T01:59:59.999999", "a"),
        ("2026-03-01", "a"),  # its midnight
        ("2026-03-01T03:00", "b"),  # which a failed run left as it was
        ("2026-03-02T02:00", "e"),  # of two of one time, the later one
        ("2026-03-03T02:00", "e"),  # published after "c", which ended later by its clock
        ("9999-12-31", "e"),
    ],
)
def test_a_time_names_the_run_that_was_published_last_of_those_done_by_then(
    monkeypatch: pytest.MonkeyPatch, name: str, wanted: str
) -> None:
    assert found(monkeypatch, name) == wanted


def test_a_time_in_the_past_of_a_clock_that_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, "2026-03-02T12:00", ["c", "d"]) == "d"
    assert found(monkeypatch, "2026-03-02T12:00", ["d", "c"]) == "d"


def test_a_time_is_never_the_beginning_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, "20260301T020000Z-b") == "b"
    assert found(monkeypatch, "20260301", ["b"]) == "b"
    with pytest.raises(WarehouseError, match=r"^'20260301' matches 6 runs"):
        found(monkeypatch, "20260301")
    with pytest.raises(WarehouseError, match=r"^there is no run '20260228' in w"):
        found(monkeypatch, "20260228")


def test_before_the_first_run_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    at = (TWO - DAY - US).astimezone(timezone(timedelta(hours=1)))
    with pytest.raises(WarehouseError) as caught:
        found(monkeypatch, at.isoformat())
    assert str(caught.value) == (
        "no run of w was done by 2026-02-28 01:59:59 UTC: the first one, 20260301T020000Z-aaaaaa, "
        "was at 2026-02-28 02:00:00 UTC; see: kp-batch runs --warehouse w"
    )
    with pytest.raises(WarehouseError, match=r"was done by 2026-04-01 00:00:00 UTC, nor later; s"):
        found(monkeypatch, "2026-04-01", ["x"])


@pytest.mark.parametrize(
    "name", ["2026-02-30", "2026-03", "2026-03-01T", "2026-03-01T25:00", "2026-03-01T02:00 CET"]
)
def test_a_malformed_time_is_reported(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(WarehouseError) as caught:
        found(monkeypatch, name)
    assert str(caught.value).startswith(
        f"{name!r} is not a time; write it as 2026-03-01, 2026-03-01"
    )
