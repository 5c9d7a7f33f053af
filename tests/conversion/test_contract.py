"""What holds for every format: what is wrong with one trace is reported of it, and of no other."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from math import inf, nan
from pathlib import Path

import pytest

from kp_batch.conversion.formats import FORMATS, detect_format
from kp_batch.imports.import_limits import ImportLimits
from kp_batch.imports.importing import import_traces
from tests.support import GOLDEN
from tests.support.formats.kits import ASKED, KITS, SECONDS, Kit
from tests.support.imports.drafting import Conversion
from tests.support.imports.importing import imported, refusals


def of_kits(names: Iterable[str]) -> pytest.MarkDecorator:
    """A test of these kits."""
    return pytest.mark.parametrize("kit", [pytest.param(KITS[name], id=name) for name in names])


PARQUET = [name for name, kit in KITS.items() if kit.is_parquet]
of_all = of_kits(KITS)
of_parquet = of_kits(PARQUET)
of_scored_json = of_kits([x for x, kit in KITS.items() if not (kit.is_parquet or kit.is_log)])
of_both_times = pytest.mark.parametrize("created_at", ["start", "end"])
LOGS = [name for name, kit in KITS.items() if kit.is_log]
LINES = [name for name, kit in KITS.items() if kit.is_lines]
of_lines = of_kits(name for name in LINES if name not in LOGS)
of_scored = of_kits([name for name in KITS if name not in LOGS])
of_logs = of_kits(LOGS)


def test_every_format_has_a_kit() -> None:
    assert {kit.name for kit in KITS.values()} == FORMATS.keys(), "add a kit to KITS"


@of_all
def test_a_format_is_detected(tmp_path: Path, kit: Kit) -> None:
    files = [*map(str, kit.write(tmp_path, [kit.make("aa", kit.at, 1.0)]))]
    found = detect_format(
        files, lambda path: Path(path).read_bytes(), lambda x: nullcontext(Path(x))
    )
    assert found.name == kit.name


@pytest.mark.parametrize("folder", sorted((GOLDEN / "imports").iterdir()), ids=lambda x: x.name)
def test_real_files_are_of_one_format(folder: Path) -> None:
    files = [str(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    found = detect_format(
        files, lambda path: Path(path).read_bytes(), lambda x: nullcontext(Path(x))
    )
    assert found.name == folder.name


@of_all
def test_an_archive_has_each_trace_once_in_whatever_order_and_however_often_it_is_read(
    tmp_path: Path, kit: Kit
) -> None:
    traces = [kit.make(name, kit.at, 1.0) for name in ("aa", "bb", "cc")]
    kit.write(tmp_path / "once", traces)
    step = 1 if kit.is_log else -1
    turned = [{name: rows[::step] for name, rows in trace.items()} for trace in traces[::-1]]
    kit.write(tmp_path / "twice/1", turned)
    kit.write(tmp_path / "twice/2", traces[1:])
    once, archive = kit.converted(tmp_path / "once"), tmp_path / "archive"
    assert (len(once.rows), once.refused) == (3, [])
    assert kit.read(tmp_path / "twice", archive).refused == {}
    assert imported(archive) == kit.converted(tmp_path / "twice").rows == once.rows


def reasons(made: Conversion) -> list[list[str]]:
    """Why traces are refused, beside one that is not."""
    assert len(made.rows) == 1
    return made.reasons


@of_scored_json
def test_a_score_of_many_digits_decides_nothing(tmp_path: Path, kit: Kit) -> None:
    test_a_score_that_is_no_finite_number_decides_nothing(tmp_path, kit, 10**400)


@of_scored
@pytest.mark.parametrize("score", [nan, inf, -inf])
def test_a_score_that_is_no_finite_number_decides_nothing(
    tmp_path: Path, kit: Kit, score: float
) -> None:
    kit.write(tmp_path, [kit.make("aa", kit.at, 1.0), kit.make("bb", kit.at, score)])
    reason = "bad_confidence" if kit.name == "knowledgepulse" else "missing_success"
    assert reasons(kit.converted(tmp_path)) == [[reason]]


@of_all
@of_both_times
def test_a_trace_may_be_of_the_first_and_of_the_last_moment(
    tmp_path: Path, kit: Kit, created_at: str
) -> None:
    names = zip(("aa", "bb"), kit.ends, strict=True)
    kit.write(tmp_path, [kit.make(name, at, 1.0) for name, at in names])
    made = kit.converted(tmp_path, created_at)
    assert made.refused == []
    rows = [made.rows[name] for name in sorted(made.rows)]
    assert [row["metadata"]["created_at"] for row in rows] == [*kit.ends.values()]


@of_all
@of_both_times
def test_a_time_of_no_calendar_is_that_trace_s_alone(
    tmp_path: Path, kit: Kit, created_at: str
) -> None:
    names = zip(("bb", "cc", "dd"), kit.beyond, strict=False)
    odd = [kit.make(name, at, 1.0) for name, at in names]
    kit.write(tmp_path, [kit.make("aa", kit.at, 1.0), *odd])
    assert reasons(kit.converted(tmp_path, created_at)) == [["bad_created_at"]] * len(kit.beyond)


@pytest.mark.parametrize("extreme", [2**62, -(2**62)])
@of_parquet
def test_nor_does_one_in_milliseconds(tmp_path: Path, kit: Kit, extreme: int) -> None:
    traces = [kit.make("aa", SECONDS * 1_000, 1.0), kit.make("bb", extreme, 1.0)]
    kit.write(tmp_path, traces, "ms")
    assert reasons(kit.converted(tmp_path)) == [["bad_created_at"]]


@of_all
def test_times_in_nanoseconds_are_cut_to_microseconds(tmp_path: Path, kit: Kit) -> None:
    counted = SECONDS * 10**9 + 1_999
    texts = (
        str(counted) if kit.name in ("otlp", "mlflow") else "2026-08-03T11:00:00.000001999+02:00"
    )
    kit.write(tmp_path, [kit.make("aa", counted if kit.is_parquet else texts, 1.0)], "ns")
    made = kit.converted(tmp_path)
    assert (made.reasons, made.row["metadata"]["created_at"]) == ([], "2026-08-03T09:00:00.000001Z")


@of_lines
def test_a_torn_first_line_is_refused_alone_and_a_torn_last_one_waits(
    tmp_path: Path, kit: Kit
) -> None:
    paths = kit.write(tmp_path, [kit.make(name, kit.at, 1.0) for name in ("aa", "bb")])
    for path in paths:
        whole = path.read_text("utf-8")
        path.write_text(f'la"}}\n{whole}\n{whole[: len(whole) // 9]}', "utf-8")
    made = kit.converted(tmp_path)
    torn = [["malformed_json"], ["malformed_json", "unfinished_line"]]
    assert (len(made.rows), made.reasons) == (2, torn * len(paths))


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
    kit.write(tmp_path / "whole", [kit.make("aa", kit.at, 1.0)])
    damaged = kit.write(tmp_path / "damaged", [kit.make("bb", kit.at, 1.0)])
    for path in damaged:
        path.write_bytes(damage(path.read_bytes()))
    made = kit.converted(tmp_path)
    assert len(made.rows) == 1
    reported = {file for file, _ in made.refused}
    is_normal = kit.make is KITS["langfuse"].make and not kit.is_parquet and damage is emptied
    assert reported <= set(map(str, damaged))
    assert reported or is_normal


@pytest.mark.parametrize("damage", [cut, no_utf_8, deep])
@of_lines
def test_a_damaged_row_is_refused_alone(
    tmp_path: Path, kit: Kit, damage: Callable[[bytes], bytes]
) -> None:
    path, *_ = kit.write(tmp_path, [kit.make(name, kit.at, 1.0) for name in ("aa", "bb")])
    first, last = path.read_bytes().rsplit(b"\n", 1)
    path.write_bytes(first + b"\n" + damage(last))
    made = kit.converted(tmp_path)
    assert len(made.rows) == 1
    assert first.count(b"\n") + 2 in {refusal.line for _, refusal in made.refused}


@of_all
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_json_of_many_levels_in_a_text_stops_nothing(
    tmp_path: Path, kit: Kit, begin: str, end: str
) -> None:
    odd = kit.make("bb", kit.at, 1.0, f"{begin * 9_999}1{end * 9_999}")
    kit.write(tmp_path, [kit.make("aa", kit.at, 1.0), odd])
    made = kit.converted(tmp_path)
    assert len(made.rows) + len(made.refused) == 2


@of_logs
def test_a_torn_line_of_a_log_is_refused_alone_and_the_last_one_waits(
    tmp_path: Path, kit: Kit
) -> None:
    (path,) = kit.write(tmp_path, [kit.make("aa", kit.at, 1.0)])
    first, *others = path.read_text("utf-8").splitlines()
    # Below the first line, which says whose session a log is.
    lines = [first, 'la"}', *others, (others or [first])[-1][:40]]
    path.write_text("\n".join(lines), "utf-8")
    made = kit.converted(tmp_path)
    assert made.reasons == [["malformed_json"], ["malformed_json", "unfinished_line"]]
    assert len(made.row["steps"]) == 1


@pytest.mark.parametrize("name", LINES)
def test_a_file_that_is_being_written_is_imported_up_to_its_torn_line(
    tmp_path: Path, name: str
) -> None:
    kit, source, archive = KITS[name], tmp_path / "in", tmp_path / "out"
    path, *_ = kit.write(source, [kit.make("aa", kit.at, 1.0), kit.make("bb", kit.at, 1.0)])
    lines = path.read_bytes().splitlines()
    whole = b"\n".join([*lines, lines[-1], b""])
    path.write_bytes(whole[:-9])
    limits = ImportLimits(max_refused="0", max_unreadable="0")
    done = import_traces(FORMATS[kit.name], [str(source)], archive, kit.rules, limits)
    assert (done.refused, done.waiting.get("unfinished_line")) == ({}, 1)
    waiting = refusals(archive, "waiting")
    assert (str(path), whole.count(b"\n")) in {(line["file"], line["line"]) for line in waiting}
    path.write_bytes(whole)
    done = import_traces(FORMATS[kit.name], [str(source)], archive, kit.rules, limits)
    assert done.unresolved == {"refused": 0, "waiting": 0}
    assert len(imported(archive)) == 2
