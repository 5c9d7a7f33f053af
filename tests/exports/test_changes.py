"""Exports after something changed: only what changed, what is to be deleted, and why it differs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import kp_batch as kp
from kp_batch.config import RescoreConfig
from kp_batch.errors import KpBatchError, SettingError, WarehouseError
from kp_batch.exports.export import ExportResult
from kp_batch.exports.formats import FORMATS
from kp_batch.operations.forget import forget
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.runs import config, scores
from tests.support.processes.commands import invoke

pytestmark = pytest.mark.slow

KEPT = ("score", "encoder_id", "cache_id", "cache_group", "profile_id")


def numbered(number: int, words: str, **more: Any) -> dict[str, Any]:
    at = f"2026-01-{5 + number:02}T08:00:00Z"
    return trace(id=f"t{number}", created_at=at, steps=[step("thought", words)] * 2, **more)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def ids(path: Path) -> list[str]:
    return [row["id"] for row in lines(path)]


def by_id(of: RescoreConfig) -> dict[str, tuple[Any, ...]]:
    rows = scores(of).select("trace_id", *KEPT).iter_rows()
    return {trace_id: values for trace_id, *values in map(tuple, rows)}


class Nights:
    """Two nights over an archive: some traces stay, change their scores, come and go."""

    def __init__(self, folder: Path) -> None:
        self.archive = folder / "archive"
        self.config = config(folder, self.archive, max_reject_share=1)
        self.wh = kp.Warehouse(self.config.warehouse)
        words = ["one two", "three four", "one two", "five six", "seven", "one two three"]
        rows = [numbered(number, text) for number, text in enumerate(words)]
        write_jsonl(self.archive / "a.jsonl", rows)
        self.first = rescore_archive(self.config).run_id
        self.before = by_id(self.config)
        rows[1] = numbered(1, "one two")  # other words: its novelty changes, and that of later ones
        rows[4] = numbered(4, "seven", confidence=0.1)
        write_jsonl(self.archive / "a.jsonl", [*rows[:3], *rows[4:], numbered(9, "nine nine")])
        rescore_archive(config(folder, self.archive, max_reject_share=1, prune=True))
        forget(self.config.warehouse, ["t5"])
        self.after = by_id(self.config)

    def export(self, path: Path, **options: Any) -> ExportResult:
        return self.wh.export(path, **{"min_score": 0.0, **options})


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    return Nights(tmp_path_factory.mktemp("nights"))


def test_only_traces_that_are_new_or_scored_otherwise_are_exported(
    nights: Nights, tmp_path: Path
) -> None:
    changed = {each for each, value in nights.after.items() if nights.before.get(each) != value}
    assert {"t9", "t1", "t4"} <= changed < {*nights.after}
    result = nights.export(tmp_path / "a.jsonl", only_changed=nights.first)
    assert {*ids(tmp_path / "a.jsonl")} == changed
    words = f"changed since run {nights.first}"
    assert result.conditions == {words: len(nights.after) - len(changed)}
    assert nights.export(tmp_path / "a.jsonl", only_changed="latest").chosen == 0


def test_other_weights_with_equal_scores_are_a_change(tmp_path: Path) -> None:
    """A lone thought scores 0.1 with all weights."""
    archive, rows = tmp_path / "archive", [trace(id="t0", steps=[step("thought", "alone")])]
    write_jsonl(archive / "a.jsonl", rows)
    first = rescore_archive(config(tmp_path, archive))
    weights = {"complexity": 1.0, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 0}
    second = config(tmp_path, archive, profiles={"default": weights, "code": weights})
    rescore_archive(second)
    wh = kp.Warehouse(second.warehouse)
    assert wh.scores().select("score").collect().item() == 0.1
    result = wh.export(tmp_path / "a.jsonl", min_score=0, only_changed=first.run_id)
    assert result.exported == 1


def test_scores_to_delete_are_those_of_the_run_and_of_ids_without_one_now(
    nights: Nights, tmp_path: Path
) -> None:
    """A forgotten id is in no run; it is given again."""
    deleted = tmp_path / "deleted.txt"
    options = {"only_changed": nights.first, "deleted": deleted}
    result = nights.export(tmp_path / "a.jsonl", **options)
    assert (result.deleted, deleted.read_text()) == (1, "t3\n")
    assert {"t3", "t5"} == nights.before.keys() - nights.after.keys()
    (tmp_path / "ids.txt").write_text("t5\r\n\nt0\nt3\n")
    options = {"ids": tmp_path / "ids.txt", "deleted": deleted}
    result = nights.export(tmp_path / "b.jsonl", **options)
    assert (result.ids_without_score, deleted.read_text()) == (2, "t3\nt5\n")
    assert ids(tmp_path / "b.jsonl") == ["t0"]
    with pytest.raises(SettingError, match="deleted needs earlier scores: give only"):
        nights.export(tmp_path / "a.jsonl", deleted=deleted)


def test_scores_to_delete_have_the_ids_that_the_other_system_knows(
    nights: Nights, tmp_path: Path
) -> None:
    deleted, score_id = tmp_path / "deleted.txt", FORMATS["langfuse"].score_id
    assert score_id
    options = {"ids": ["t3", "t0"], "deleted": deleted}
    nights.export(tmp_path / "a.jsonl", format="langfuse", **options)
    assert deleted.read_text() == f"{score_id('t3')}\n"
    assert [row["id"] for row in lines(tmp_path / "a.jsonl")] == [score_id("t0")]


def test_an_unknown_or_removed_run_is_refused_and_nothing_is_replaced(
    nights: Nights, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("as it was")
    with pytest.raises(WarehouseError, match="no run"):
        nights.export(path, only_changed="1999")
    assert path.read_text() == "as it was"


def test_ids_are_a_file_a_table_a_frame_or_texts(nights: Nights, tmp_path: Path) -> None:
    frame = pl.DataFrame({"trace_id": ["t2", "t0", "t2", "unknown"], "more": [1, 2, 3, 4]})
    frame.write_parquet(tmp_path / "ids.parquet")
    frame.write_csv(tmp_path / "ids.csv")
    frame.rename({"trace_id": "id"}).write_ndjson(tmp_path / "ids.jsonl")
    frame.rename({"trace_id": "id"}).write_ndjson(tmp_path / "ids.ndjson")
    (tmp_path / "ids.txt").write_bytes(b"\xef\xbb\xbft2 \r\nt0\n\nunknown")
    endings = ("parquet", "csv", "jsonl", "ndjson", "txt")
    tables = [tmp_path / f"ids.{ending}" for ending in endings]
    kinds = [*tables, frame, frame.to_arrow(), frame.to_pandas(), ["t2", "t0", "unknown"]]
    for each in kinds:
        result = nights.export(tmp_path / "a.jsonl", ids=each)
        assert ids(tmp_path / "a.jsonl") == ["t0", "t2"]
        assert (result.ids_without_score, result.conditions) == (1, {"one of 3 ids": 3})
    printed = invoke(
        *("export", "--warehouse", nights.config.warehouse, "-o", tmp_path / "b.jsonl"),
        *("--ids", tmp_path / "a.jsonl", "--min-score", 0),
    )
    assert "chosen by  one of 2 ids; leaves out 3" in printed.stdout
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "there are no ids, or"),
        ([1, 2], "some are empty or not texts"),
        ([["t0"]], "some are empty or not texts"),
        (5, "give a file, a frame or ids, got 5"),
        ("missing.txt", "missing.txt cannot be read: No such file"),
        ("missing.parquet", "missing.parquet is missing; name a file"),
        (pl.DataFrame({"name": ["t0"]}), "the frame has no trace_id or id in any row; give"),
        (pl.DataFrame({"id": ["t0", "", None]}), "the frame has no trace_id or id in row 2; give"),
        (pl.DataFrame({"id": [["t0"]]}), "the frame cannot be used: .*; give trace_id as text"),
        (pd.DataFrame({"id": ["t0", 1]}), "the frame cannot be used: .*; give trace_id as text"),
    ],
)
def test_ids_that_cannot_be_read_are_refused(
    nights: Nights, tmp_path: Path, given: Any, reason: str
) -> None:
    with pytest.raises(SettingError, match=reason):
        nights.export(tmp_path / "a.jsonl", ids=given)


def test_ids_without_any_score_are_refused_unless_their_scores_are_to_be_deleted(
    nights: Nights, tmp_path: Path
) -> None:
    with pytest.raises(KpBatchError, match="none of 2 ids has a score"):
        nights.export(tmp_path / "a.jsonl", ids=["x", "y"])
    result = nights.export(tmp_path / "a.jsonl", ids=["x", "y"], deleted=tmp_path / "gone.txt")
    assert (result.exported, result.deleted) == (0, 2)


def test_a_damaged_table_of_ids_is_refused(nights: Nights, tmp_path: Path) -> None:
    tables = {
        "a.jsonl": b"[1]\n",
        "b.jsonl": b"{",
        "c.parquet": b"PAR1",
        "d.jsonl": b'{"id": "t0", "more": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        "langfuse.jsonl": b'{"id": "5f1f", "traceId": "t0"}\n',
        "langsmith.jsonl": b'{"id": "5f1f", "trace_id": "t0", "feedback_source": {}}\n',
    }
    for name, content in tables.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(SettingError, match=name):
            nights.export(tmp_path / "out.jsonl", ids=path)
        with pytest.raises(KpBatchError, match=name):
            nights.export(tmp_path / "out.jsonl", compare_with=path)


def test_ids_need_no_scores_and_stay_texts_in_csv(tmp_path: Path) -> None:
    """Such ids look like numbers."""
    names = ["0001", "1e5", "7"]
    write_jsonl(tmp_path / "archive" / "a.jsonl", [numbered(0, "x") | {"id": n} for n in names])
    of = config(tmp_path, tmp_path / "archive")
    rescore_archive(of)
    wh = kp.Warehouse(of.warehouse)
    wh.export(tmp_path / "all.csv", format="csv")
    found = wh.export(tmp_path / "a.jsonl", min_score=0, ids=tmp_path / "all.csv")
    assert (found.exported, found.ids_without_score) == (3, 0)
    compared = wh.export(tmp_path / "b.csv", format="csv", compare_with=tmp_path / "all.csv")
    assert compared.comparison
    assert compared.comparison.in_both == 3
    rows = [{"id": name, "metadata": {"more": "x"}, "score": "high"} for name in names]
    pl.DataFrame(rows).write_parquet(tmp_path / "odd.parquet")
    write_jsonl(tmp_path / "odd.jsonl", rows)
    for ending in ("parquet", "jsonl"):
        found = wh.export(tmp_path / "a.jsonl", min_score=0, ids=tmp_path / f"odd.{ending}")
        assert found.exported == 3


def test_deleted_ids_have_a_file_of_their_own(nights: Nights, tmp_path: Path) -> None:
    options: dict[str, Any] = {"ids": ["t0", "t3"], "deleted": tmp_path / "a.jsonl"}
    for output, more in (("a.jsonl", {}), ("./a.jsonl", {}), ("b.jsonl", {"deleted": "-"})):
        with pytest.raises(KpBatchError, match="is also the output; name another"):
            nights.export(tmp_path / output, **options | more)
    options |= {"ids": ["t0"], "deleted": tmp_path / "c.train.jsonl", "split": 0.5}
    with pytest.raises(KpBatchError, match="is also the output"):
        nights.export(tmp_path / "c.jsonl", **options)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"only_changed": ""}, "only_changed"),
        ({"split_by": "time"}, "split_by needs split"),
        ({"include_registry": True}, "include_registry needs the format registry"),
        ({"per": {"nope": 1}}, "it must be a column and a number"),
        ({"per": {"task_domain": 0}}, "it must be a column and a number"),
    ],
)
def test_options_that_would_do_nothing_or_cannot_be_are_refused(
    nights: Nights, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SettingError, match=reason):
        nights.export(tmp_path / "a.jsonl", **options)


def test_each_trace_that_entered_or_left_has_its_reason(nights: Nights, tmp_path: Path) -> None:
    """The earlier export has made-up scores, so that each reason occurs."""
    now = {each: values[0] for each, values in nights.after.items()}
    worst = min(now, key=lambda each: (now[each], -int(each[1:])))
    earlier = {"t0": now["t0"], "t3": 0.5, "t5": 0.5, "t1": now["t1"] + 0.01, worst: now[worst]}
    rows = [{"id": each, "score": score} for each, score in earlier.items()]
    path = tmp_path / "earlier.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    others = [each for each in now if each not in (worst, "t1")]
    options = {"ids": [*others, worst], "top": len(others), "compare_with": path}
    comparison = nights.export(tmp_path / "a.jsonl", **options).comparison
    assert comparison
    assert comparison.left == {
        "a better trace replaced it": 1,
        "forgotten": 1,
        "its score changed": 1,
        "no longer scored": 1,
    }
    entered = {*ids(tmp_path / "a.jsonl")} - earlier.keys()
    newest = max(int(each[1:]) for each in earlier if each in now)
    expected = Counter("newer" if int(each[1:]) > newest else "not chosen then" for each in entered)
    assert comparison.entered == dict(expected)
    assert comparison.in_both == len(earlier) - 4
    listed = {row["trace_id"]: row for row in comparison.changes}
    assert listed.keys() == entered | {"t3", "t5", "t1", worst}
    assert listed["t1"]["earlier_score"] == earlier["t1"]
    assert listed["t1"]["score"] == now["t1"]


def test_an_export_is_compared_with_one_of_each_format(nights: Nights, tmp_path: Path) -> None:
    for ending in ("jsonl", "parquet"):
        path = tmp_path / f"a.{ending}"
        nights.export(path, top=2)
        comparison = nights.export(tmp_path / "b.jsonl", top=3, compare_with=path).comparison
        assert comparison
        assert (comparison.in_both, comparison.left) == (2, {})
        assert sum(comparison.entered.values()) == 1
        unreadable = nights.export(
            tmp_path / "b.jsonl", where="trace_id = 't0'", compare_with=path
        ).comparison
        assert unreadable
        assert {*unreadable.left} == {"does not meet the conditions"}


def test_the_command_says_what_entered_and_left(nights: Nights, tmp_path: Path) -> None:
    nights.export(tmp_path / "a.jsonl", top=2)
    words = ("export", "--warehouse", nights.config.warehouse, "--min-score", 0, "--top", 3)
    output = ("-o", tmp_path / "b.jsonl", "--compare-with", tmp_path / "a.jsonl")
    printed = invoke(*words, *output).stdout
    assert "  in both    2 traces\n" in printed
    assert "  entered    1 trace: " in printed


def split_of(folder: Path) -> tuple[list[str], list[str]]:
    return ids(folder / "a.train.jsonl"), ids(folder / "a.test.jsonl")


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> RescoreConfig:
    """Forty tasks of one to four attempts, some at the same time."""
    folder = tmp_path_factory.mktemp("attempts")
    rows = [
        trace(
            id=f"{task:02}-{attempt}",
            objective=f"task {task}",
            created_at=f"2026-01-{1 + task // 8 + attempt:02}T08:00:00Z",
        )
        for task in range(40)
        for attempt in range(1 + task % 4)
    ]
    write_jsonl(folder / "archive" / "a.jsonl", rows)
    run_config = config(folder, folder / "archive", max_reject_share=1)
    rescore_archive(run_config)
    return run_config


def test_a_split_shares_no_task_and_a_task_keeps_its_side(
    attempts: RescoreConfig, tmp_path: Path
) -> None:
    wh = kp.Warehouse(attempts.warehouse)
    hashes = dict(scores(attempts).select("trace_id", "objective_hash").iter_rows())
    before: tuple[set[str], set[str]] = (set(), set())
    for share, top in ((0.25, None), (0.75, None), (0.75, 30)):
        result = wh.export(tmp_path / "a.jsonl", min_score=0, split=share, top=top)
        train, test = split_of(tmp_path)
        assert {*train} == {
            each for each in (*train, *test) if int(hashes[each], 16) < share * 16**32
        }
        assert not {hashes[each] for each in train} & {hashes[each] for each in test}
        assert (result.training, result.exported) == (len(train), len(train) + len(test))
        assert train
        assert test
        if top:  # fewer traces, on the sides of before
            assert {*train} < before[0]
            assert {*test} < before[1]
        before = ({*train}, {*test})
    assert not (tmp_path / "a.jsonl").exists()


def test_a_split_by_time_shares_no_time(attempts: RescoreConfig, tmp_path: Path) -> None:
    wh = kp.Warehouse(attempts.warehouse)
    times = dict(scores(attempts).select("trace_id", "created_at").iter_rows())
    for share in (0.1, 0.5, 0.9, 0.999):
        wh.export(tmp_path / "a.jsonl", min_score=0, split=share, split_by="time")
        train, test = split_of(tmp_path)
        bound = sorted(times.values())[int(share * len(times))]
        assert train == sorted((e for e in times if times[e] < bound), key=lambda e: (times[e], e))
        assert test == sorted((e for e in times if times[e] >= bound), key=lambda e: (times[e], e))


@pytest.mark.parametrize(
    ("split_by", "share", "empty"),
    [("objective", 0.001, "train"), ("objective", 0.999, "test"), ("time", 0.999, "train")],
)
def test_an_empty_part_is_warned_of(
    attempts: RescoreConfig, tmp_path: Path, split_by: str, share: float, empty: str
) -> None:
    """The traces are those of one task, or of one time."""
    unit, chosen = "task", "starts_with(trace_id, '07-')"
    if split_by == "time":
        unit, chosen = "time", "created_at = (SELECT min(created_at) FROM scores)"
    path = tmp_path / f"a.{empty}.jsonl"
    message = (
        f"{path} is empty: there are too few {unit}s for the share {share}, because traces of "
        f"one {unit} stay together; export traces of more {unit}s, or choose another share"
    )
    options: dict[str, Any] = {"min_score": 0, "where": chosen, "split_by": split_by}
    wh = kp.Warehouse(attempts.warehouse)
    with pytest.warns(UserWarning, match="is empty") as warned:
        result = wh.export(tmp_path / "a.jsonl", split=share, **options)
    assert [str(each.message) for each in warned] == [message]
    assert not path.read_text()
    assert result.training == (0 if empty == "train" else result.exported)
    words = ("export", "--warehouse", attempts.warehouse, "-o", tmp_path / "a.jsonl", "--json")
    words += ("--min-score", 0, "--where", chosen, "--split", share, "--split-by", split_by)
    printed = invoke(*words)
    assert (printed.returncode, printed.stderr.count("is empty")) == (0, 1)
    assert message in printed.stderr
    # Of no trace at all, the conditions say why; and a warning is an error in the tests.
    assert not wh.export(tmp_path / "a.jsonl", split=share, **options | {"where": "false"}).exported


def test_two_files_are_both_replaced_or_neither(attempts: RescoreConfig, tmp_path: Path) -> None:
    wh = kp.Warehouse(attempts.warehouse)
    (tmp_path / "a.test.jsonl").mkdir()
    with pytest.raises(KpBatchError, match=r"a\.test\.jsonl cannot be written: it is a folder"):
        wh.export(tmp_path / "a.jsonl", min_score=0, split=0.5)
    assert not (tmp_path / "a.train.jsonl").exists()
    printed = invoke(
        *("export", "--warehouse", attempts.warehouse, "-o", "-", "--split", 0.5),
    )
    assert printed.returncode == 2
    assert "--split writes two files; name a file with -o" in printed.stderr
