"""What holds for every format: what is wrong with one trace is reported of it, and of no other."""

from collections.abc import Callable, Iterable
from math import inf, nan
from pathlib import Path

import pytest

from kp_batch.conversion.formats import FORMATS
from tests.support.import_kits import ASKED, KITS, SECONDS, Kit
from tests.support.importing import imported, refusals

pytestmark = pytest.mark.slow


def of_kits(names: Iterable[str]) -> pytest.MarkDecorator:
    """A test of these kits."""
    return pytest.mark.parametrize("kit", [pytest.param(KITS[name], id=name) for name in names])


PARQUET = [name for name, kit in KITS.items() if kit.is_parquet]
of_all = of_kits(KITS)
of_parquet = of_kits(PARQUET)
of_scored_json = of_kits([x for x, kit in KITS.items() if not (kit.is_parquet or kit.is_log)])
of_both_times = pytest.mark.parametrize("created_at", ["start", "end"])
of_lines = of_kits(["otlp", "langfuse", "langsmith"])
LOGS = [name for name, kit in KITS.items() if kit.is_log]
of_scored = of_kits([name for name in KITS if name not in LOGS])
of_logs = of_kits(LOGS)


def test_every_format_has_a_kit() -> None:
    assert {kit.name for kit in KITS.values()} == FORMATS.keys()


def reasons(tmp_path: Path) -> list[list[str]]:
    """Why traces are refused, beside one that is not."""
    assert len(imported(tmp_path / "out")) == 1
    return [refusal["reasons"] for refusal in refusals(tmp_path / "out")]


@of_all
def test_neither_the_order_of_records_matters_nor_that_some_stand_twice(
    tmp_path: Path, kit: Kit
) -> None:
    traces = [kit.make(name, kit.at, 1.0) for name in ("aa", "bb", "cc")]
    kit.write(tmp_path / "once", traces)
    step = 1 if kit.is_log else -1
    turned = [{name: rows[::step] for name, rows in trace.items()} for trace in traces[::-1]]
    kit.write(tmp_path / "twice/1", turned)
    kit.write(tmp_path / "twice/2", traces[1:])
    for name in ("once", "twice"):
        assert kit.read(tmp_path / name, tmp_path / f"{name} out").refused == {}
    assert len(imported(tmp_path / "once out")) == 3
    assert imported(tmp_path / "twice out") == imported(tmp_path / "once out")


@of_scored_json
def test_a_score_of_many_digits_decides_nothing(tmp_path: Path, kit: Kit) -> None:
    test_a_score_that_is_no_finite_number_decides_nothing(tmp_path, kit, 10**400)


@of_scored
@pytest.mark.parametrize("score", [nan, inf, -inf])
def test_a_score_that_is_no_finite_number_decides_nothing(
    tmp_path: Path, kit: Kit, score: float
) -> None:
    kit.write(tmp_path / "in", [kit.make("aa", kit.at, 1.0), kit.make("bb", kit.at, score)])
    kit.read(tmp_path / "in", tmp_path / "out")
    reason = "bad_confidence" if kit.name == "knowledgepulse" else "missing_success"
    assert reasons(tmp_path) == [[reason]]


@of_all
@of_both_times
def test_a_trace_may_be_of_the_first_and_of_the_last_moment(
    tmp_path: Path, kit: Kit, created_at: str
) -> None:
    names = zip(("aa", "bb"), kit.ends, strict=True)
    kit.write(tmp_path / "in", [kit.make(name, at, 1.0) for name, at in names])
    assert kit.read(tmp_path / "in", tmp_path / "out", created_at).refused == {}
    rows = imported(tmp_path / "out").values()
    assert [row["metadata"]["created_at"] for row in rows] == [*kit.ends.values()]


@of_all
@of_both_times
def test_a_time_of_no_calendar_is_that_trace_s_alone(
    tmp_path: Path, kit: Kit, created_at: str
) -> None:
    names = zip(("bb", "cc", "dd"), kit.beyond, strict=False)
    odd = [kit.make(name, at, 1.0) for name, at in names]
    kit.write(tmp_path / "in", [kit.make("aa", kit.at, 1.0), *odd])
    kit.read(tmp_path / "in", tmp_path / "out", created_at)
    assert reasons(tmp_path) == [["bad_created_at"]] * len(kit.beyond)


@pytest.mark.parametrize("extreme", [2**62, -(2**62)])
@of_parquet
def test_nor_does_one_in_milliseconds(tmp_path: Path, kit: Kit, extreme: int) -> None:
    traces = [kit.make("aa", SECONDS * 1_000, 1.0), kit.make("bb", extreme, 1.0)]
    kit.write(tmp_path / "in", traces, "ms")
    kit.read(tmp_path / "in", tmp_path / "out")
    assert reasons(tmp_path) == [["bad_created_at"]]


@of_all
def test_times_in_nanoseconds_are_cut_to_microseconds(tmp_path: Path, kit: Kit) -> None:
    counted = SECONDS * 10**9 + 1_999
    texts = str(counted) if kit.name == "otlp" else "2026-08-03T11:00:00.000001999+02:00"
    kit.write(tmp_path / "in", [kit.make("aa", counted if kit.is_parquet else texts, 1.0)], "ns")
    assert kit.read(tmp_path / "in", tmp_path / "out").refused == {}
    (row,) = imported(tmp_path / "out").values()
    assert row["metadata"]["created_at"] == "2026-08-03T09:00:00.000001Z"


@of_lines
def test_a_torn_first_and_last_line_are_refused_alone(tmp_path: Path, kit: Kit) -> None:
    for path in kit.write(tmp_path / "in", [kit.make(name, kit.at, 1.0) for name in ("aa", "bb")]):
        whole = path.read_text("utf-8")
        path.write_text(f'la"}}\n{whole}\n{whole[: len(whole) // 9]}', "utf-8")
    kit.read(tmp_path / "in", tmp_path / "out")
    assert len(imported(tmp_path / "out")) == 2
    assert {tuple(refusal["reasons"]) for refusal in refusals(tmp_path / "out")} == {
        ("malformed_json",)
    }


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def emptied(_: bytes) -> bytes:
    return b""


def no_utf_8(content: bytes) -> bytes:
    return content.replace(ASKED.encode(), b"\xff\xfe")


def deep(content: bytes) -> bytes:
    return b"[" * 50_000 + content + b"]" * 50_000


@of_all
@pytest.mark.parametrize("damage", [cut, emptied, no_utf_8, deep])
def test_a_damaged_file_is_reported_by_its_name_and_the_others_are_read(
    tmp_path: Path, kit: Kit, damage: Callable[[bytes], bytes]
) -> None:
    kit.write(tmp_path / "in/whole", [kit.make("aa", kit.at, 1.0)])
    damaged = kit.write(tmp_path / "in/damaged", [kit.make("bb", kit.at, 1.0)])
    for path in damaged:
        path.write_bytes(damage(path.read_bytes()))
    kit.read(tmp_path / "in", tmp_path / "out")
    assert len(imported(tmp_path / "out")) == 1
    reported = {refusal["file"] for refusal in refusals(tmp_path / "out")}
    is_normal = kit.make is KITS["langfuse"].make and not kit.is_parquet and damage is emptied
    assert reported <= set(map(str, damaged))
    assert reported or is_normal


@pytest.mark.parametrize("damage", [cut, no_utf_8, deep])
@of_lines
def test_a_damaged_row_is_refused_alone(
    tmp_path: Path, kit: Kit, damage: Callable[[bytes], bytes]
) -> None:
    path, *_ = kit.write(tmp_path / "in", [kit.make(name, kit.at, 1.0) for name in ("aa", "bb")])
    first, last = path.read_bytes().rsplit(b"\n", 1)
    path.write_bytes(first + b"\n" + damage(last))
    kit.read(tmp_path / "in", tmp_path / "out")
    assert len(imported(tmp_path / "out")) == 1
    assert first.count(b"\n") + 2 in {refusal["line"] for refusal in refusals(tmp_path / "out")}


@of_all
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_json_of_many_levels_in_a_text_stops_nothing(
    tmp_path: Path, kit: Kit, begin: str, end: str
) -> None:
    odd = kit.make("bb", kit.at, 1.0, f"{begin * 9_999}1{end * 9_999}")
    kit.write(tmp_path / "in", [kit.make("aa", kit.at, 1.0), odd])
    done = kit.read(tmp_path / "in", tmp_path / "out")
    assert len(imported(tmp_path / "out")) + sum(done.refused.values()) == 2


@of_logs
def test_a_torn_line_of_a_log_is_refused_alone(tmp_path: Path, kit: Kit) -> None:
    (path,) = kit.write(tmp_path / "in", [kit.make("aa", kit.at, 1.0)])
    whole = path.read_text("utf-8")
    path.write_text(f'la"}}\n{whole}\n{whole.splitlines()[-1][:40]}', "utf-8")
    assert kit.read(tmp_path / "in", tmp_path / "out").refused == {"malformed_json": 2}
    assert [len(row["steps"]) for row in imported(tmp_path / "out").values()] == [1]
