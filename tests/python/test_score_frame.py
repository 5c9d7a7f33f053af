"""`kp_batch.score`: what a run over the same rows in one file would publish, and nothing left."""

import asyncio
import copy
import errno
import json
import math
import os
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import kp_batch as kp
from kp_batch.errors import ArchiveError, EncoderError, ProfileError, ResourceError, SettingError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.python import score_frame
from kp_batch.python.score_frame import COLUMNS
from tests.support import GOLDEN, ROOT
from tests.support.make.archives import (
    step,
    table,
    trace,
    write_damaged,
    write_jsonl,
    write_parquet,
)
from tests.support.make.rejected_rows import REFUSED
from tests.support.make.runs import config
from tests.support.oracle.accepted_rows import counted, observed
from tests.support.oracle.answers import assert_same
from tests.support.oracle.drawn import _settings, _trace
from tests.support.oracle.history import _file_of, ttl_text
from tests.support.oracle.scoring import DIMENSIONS, Settings, replayed
from tests.support.read.errors import fails_with
from tests.support.read.queries import ask

HOUR = timedelta(hours=1)
EXAMPLES = int(os.environ.get("KP_ORACLE_EXAMPLES", "2"))


@pytest.fixture(autouse=True)
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where temporary files go: nothing is left of them, however a test ends."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    # PyTorch makes a folder for what it compiles.
    assert [each for each in folder.iterdir() if not each.name.startswith("torch")] == []


def texts_in(value: object) -> str:
    """All that somebody may see of a result."""
    if isinstance(value, pl.DataFrame):
        return value.write_json() + "".join(value.columns)
    return repr(value)


def assert_no_path(scored: kp.ScoredFrame, folder: Path) -> None:
    shown = (pl.DataFrame(scored), scored.rejects, scored.warnings, scored._repr_html_())
    assert str(folder) not in "".join(map(texts_in, shown))


FAULTY = [
    trace(id="kp:trace:a"),
    trace(id="kp:trace:a", objective="Fix it"),
    trace(id="kp:trace:b", created_at="2026-01-05T07:00:00Z"),
    trace(id="kp:trace:b", created_at="2026-01-05T07:00:00Z"),
    trace(id=None, confidence=1.5),
]


def test_a_frame_gives_a_row_for_each_trace_and_counts_the_others() -> None:
    scored = kp.score(pl.DataFrame(table(FAULTY)), embedder="hashing", cache_size=5)
    assert scored.columns == ["row", *COLUMNS]
    assert scored.select("row", "trace_id").rows() == [(3, "kp:trace:b"), (1, "kp:trace:a")]
    assert scored.schema["created_at"] == pl.Datetime("us", "UTC")
    assert scored["cache_warming_up"].to_list() == [True, True]
    raw = json.loads(scored.rejects["raw"][1])
    assert (raw["id"], raw["outcome"]["confidence"]) == (None, 1.5)
    assert scored.rejects.drop("raw").to_dicts() == [
        {
            "row": 0,
            "trace_id": "kp:trace:a",
            "task_domain": "code",
            "reasons": ["superseded"],
            "message": "the same id has other content in row 1, which is later",
        },
        {
            "row": 4,
            "trace_id": None,
            "task_domain": "code",
            "reasons": ["missing_id", "bad_confidence"],
            "message": "id is null; outcome.confidence is 1.5, not a number from 0 to 1",
        },
    ]
    assert scored.counts == {
        "rows": 5,
        "accepted": 2,
        "duplicates": 1,
        "superseded": 1,
        "rejected": 1,
    }


@pytest.mark.slow
def test_each_cache_is_filled_from_its_own_first_trace_on() -> None:
    times = [("a", "08:00"), ("b", "10:00"), ("a", "10:00"), ("b", "10:59"), ("b", "11:00")]
    traces = [
        trace(id=str(number), agent_id=agent, created_at=f"2026-01-05T{at}:00Z")
        for number, (agent, at) in enumerate(times)
    ]
    scored = kp.score(traces, embedder="hashing", cache_size=9, ttl="1h", cache_by="agent_id")
    assert scored["cache_warming_up"].to_list() == [True, True, False, True, False]


@pytest.mark.slow
def test_its_rows_can_be_joined_with_the_frame() -> None:
    frame = pl.DataFrame(table(FAULTY)).with_row_index("row")
    joined = frame.join(kp.score(frame.drop("row"), embedder="none"), on="row")
    assert joined.select("id").to_series().to_list() == joined["trace_id"].to_list()
    frame.join(kp.score(FAULTY[-1:], embedder="none").rejects, on="row")


def test_a_frame_and_its_display_say_what_was_not_scored() -> None:
    scores, rejects = (
        pl.DataFrame({"score": [0.5]}),
        pl.DataFrame(
            {"reasons": [["missing_id", "bad_confidence"], ["superseded"], ["missing_id"]]}
        ),
    )
    counts = {"rows": 5, "accepted": 1, "duplicates": 1, "superseded": 1, "rejected": 2}
    frame = kp.ScoredFrame.of(scores, rejects, counts, ["no <trace>"])
    line = (
        "1 of 5 rows is scored; 3 rejects (missing_id 2, bad_confidence 1, superseded 1); "
        "1 duplicate of the same content"
    )
    assert str(frame) == repr(frame) == f"{line}\nwarning: no <trace>\n{scores}"
    html = frame._repr_html_()
    assert html.startswith(f"<div>{line}<br>warning: no &lt;trace&gt;</div>")
    assert html.endswith(scores._repr_html_())
    again = pickle.loads(pickle.dumps(frame))
    assert (again.counts, again.warnings) == (frame.counts, frame.warnings)
    assert_frame_equal(again.rejects, rejects)
    assert type(again) is kp.ScoredFrame


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_keeps_all(copied: Callable[[kp.ScoredFrame], kp.ScoredFrame]) -> None:
    rejects = pl.DataFrame({"row": [1]})
    frame = kp.ScoredFrame.of(pl.DataFrame({"score": [0.5]}), rejects, {"rows": 2}, ["a warning"])
    again = copied(frame)
    assert type(again) is kp.ScoredFrame
    assert (again.counts, again.warnings) == (frame.counts, frame.warnings)
    assert_frame_equal(again.rejects, rejects)
    assert_frame_equal(pl.DataFrame(again), pl.DataFrame(frame))


def test_what_polars_makes_of_it_is_a_plain_frame() -> None:
    scores = pl.DataFrame({"score": [0.5, 0.25]})
    frame = kp.ScoredFrame.of(scores, pl.DataFrame(), {"rows": 2})
    made = [frame.head(1), frame.filter(score=0.5), frame[:1], frame.sort("score"), frame.clone()]
    made += [frame.lazy().collect(), pl.concat([frame, scores]), frame.group_by("score").len()]
    assert {type(each) for each in made} == {pl.DataFrame}
    assert frame.clear(1)._repr_html_()
    assert_frame_equal(pl.DataFrame(frame), scores)
    assert frame.equals(scores)
    assert pd.DataFrame(frame.to_dict(as_series=False)).shape == (2, 1)


@pytest.mark.parametrize("nothing", [[], pl.DataFrame(), pd.DataFrame(), table([])])
def test_without_rows_the_result_has_none(nothing: Any) -> None:
    scored = kp.score(nothing, embedder="hashing")
    assert len(scored) == len(scored.rejects) == 0
    assert scored.counts["rows"] == 0
    assert str(scored).startswith("0 of 0 rows are scored\nshape: (0, ")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1])
def test_the_columns_are_the_same_whatever_is_scored(rows: int) -> None:
    scored = kp.score(FAULTY[-1:] * rows, embedder="none")
    full = kp.score(FAULTY, embedder="none")
    assert scored.schema == full.schema
    assert scored.rejects.schema == full.rejects.schema


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"cache_size": 0, "threshold": 2},
            "cache_size must be at least 1, got 0; threshold must be at most",
        ),
        ({"ttl": "soon"}, "ttl: a duration must be none, or"),
        ({"ttl": timedelta(seconds=0.5)}, "ttl: a duration must be a positive number"),
        ({"cache_by": "host"}, "cache_by: there is no host; choose from agent_id"),
        ({"cache_by": ["agent id"]}, "cache_by: it must be none, or"),
        ({"precision": "f8"}, "precision must be 'float32' or 'bf16'"),
        ({"embedder": None}, "embedder is None; for no embedder it is 'none'"),
        ({"cache_size": None}, "cache_size is None; leave it out"),
        ({"cache_size": 1.5}, "cache_size must be a whole number, got 1.5"),
    ],
)
def test_faults_of_settings_have_the_names_of_their_arguments(
    settings: dict[str, Any], message: str
) -> None:
    for traces in ([], FAULTY):
        with pytest.raises(SettingError, match=message) as caught:
            kp.score(traces, **{"embedder": "none", **settings})
        assert "--" not in str(caught.value)


def test_other_errors_are_those_of_a_run() -> None:
    with pytest.raises(ProfileError, match="the table of profiles that was given has"):
        kp.score(FAULTY, profiles={"code": {"novelty": 2}})
    with fails_with(EncoderError, "encoder"):
        kp.score(FAULTY, embedder="/nowhere")
    with fails_with(ArchiveError, "no_archive", "at '/nowhere'"):
        kp.score("/nowhere", embedder="none")
    without = pl.DataFrame(table(FAULTY)).drop("outcome").with_columns(task=pl.lit("text"))
    with pytest.raises(ArchiveError) as caught:
        kp.score(without, embedder="none")
    assert str(caught.value) == (
        "the traces cannot be scored: no column outcome.confidence; task.objective is String, "
        "expected a struct around it; see docs/reference/input.md for the columns of a trace, and "
        "docs/how-to/notebook.md to make them from flat columns"
    )


def test_nothing_is_left_and_nothing_printed(
    left: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        assert [*left.iterdir()]
        raise KeyboardInterrupt

    monkeypatch.setattr(score_frame, "score_archive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kp.score(FAULTY, embedder="hashing")
    assert [*left.iterdir()] == []
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(left))
    kp.score(FAULTY, embedder="hashing")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_it_works_under_an_event_loop_and_in_threads() -> None:
    async def both() -> list[kp.ScoredFrame]:
        here = kp.score(FAULTY, embedder="none")
        threads = (
            asyncio.to_thread(kp.score, FAULTY, embedder=name) for name in ("none", "hashing")
        )
        return [here, *await asyncio.gather(*threads)]

    here, there, other = asyncio.run(both())
    assert_frame_equal(pl.DataFrame(here), pl.DataFrame(there))
    assert set(here["encoder_id"]) == {"none"}
    assert set(other["encoder_id"]) == {"hashing-384-v1"}


def test_a_disk_that_fills_up_is_reported_without_its_folder(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(left / "kp-batch-1" / "traces"))

    monkeypatch.setattr(score_frame, "take", full)
    with fails_with(ResourceError, "disk_full", r"the disk of .* is full") as told:
        kp.score(FAULTY, embedder="none")
    assert str(left) not in str(told.value)


@pytest.mark.torture
@pytest.mark.process
def test_ten_thousand_traces_take_little_more_memory_than_their_frame() -> None:
    command = [sys.executable, "-m", "tests.bench.scoring", "--memory", "sample", "hashing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    taken, held = map(int, done.stdout.split())
    assert taken < 4 * held


def test_it_warns_in_the_result_of_what_a_plan_warns_of() -> None:
    profile = dict(zip(DIMENSIONS, (0.25,) * 4, strict=True))
    traces = [trace(created_at="2999-01-01T00:00:00Z")]
    scored = kp.score(traces, embedder="none", profiles={"coed": profile})
    assert scored.warnings == (
        "no trace has the domain coed; did you mean code?",
        "traces are dated in the future: 1 partition: 2999-01-01",
    )


@pytest.mark.slow
def test_no_result_names_a_temporary_file(left: Path) -> None:
    rows = [*FAULTY, *(row for _, row in REFUSED), None, "text", trace(objective="a" * (17 << 20))]
    scored = kp.score(rows, embedder="hashing", cache_by="agent_id")
    assert_no_path(scored, left)
    messages = dict(scored.rejects.select("row", "message").rows())
    assert messages[len(rows) - 3] == "the row is null, not a JSON object"
    assert messages[len(rows) - 2] == 'the row is "text", not a JSON object'
    assert messages[len(rows) - 1].startswith("the row is too large to be read: at most 64 MiB")
    assert {each for codes in scored.rejects["reasons"] for each in codes} >= {
        *("superseded", "malformed_json", "too_large"),
        *(code for codes, _ in REFUSED for code in codes),
    }


@pytest.mark.slow
def test_files_are_an_archive(tmp_path: Path, left: Path) -> None:
    archive = tmp_path / "archive"
    one = write_parquet(archive / "host=a" / "1.parquet", FAULTY)
    two = write_jsonl(archive / "host=b" / "2.jsonl", [b"{", FAULTY[0], trace(id="kp:trace:c")])
    for number in range(7):
        write_damaged(archive / f"{number}.parquet", [trace(id=str(n)) for n in range(4)], 2)
    scored = kp.score(archive, embedder="hashing", cache_by=["host"])
    assert scored.columns[:3] == ["source_file", "row", "trace_id"]
    assert scored.select("source_file", "row", "trace_id").rows() == [
        (str(one), 3, "kp:trace:b"),
        (str(two), 1, "kp:trace:a"),
        (str(two), 2, "kp:trace:c"),
    ]
    assert set(scored["cache_group"]) == {'{"host":"a"}', '{"host":"b"}'}
    assert scored.rejects.columns[:2] == ["source_file", "row"]
    superseded = scored.rejects.filter(source_file=str(one), row=1)["message"].item()
    assert superseded == f"the same id has other content in {two}, row 1, later in the archive"
    assert scored.warnings[-1] == "2 more files are unreadable; `rejects` lists all of them"
    assert_no_path(scored, left)
    assert kp.score([str(one), two], embedder="none").height == 3
    assert kp.score(f"{archive}/host=*/*.jsonl", embedder="none").height == 2


# The law.

KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "mappings": lambda rows: rows,
    "polars": lambda rows: pl.DataFrame(table(rows)),
    "lazy": lambda rows: pl.DataFrame(table(rows)).lazy(),
    "pandas": lambda rows: table(rows).to_pandas(),
    "arrow": lambda rows: table(rows).to_reader(max_chunksize=7),
}
# The table of the tests lacks a field that the rows then have not, either.
_IN_PARQUET = [row for codes, row in REFUSED if None not in (row["metadata"], row["task"])]


def drawn_rows(chance: random.Random) -> list[Any]:
    """Traces with ties and repeated texts, ids that come again, and rows with every fault."""
    traces = [_trace(chance, number) for number in range(chance.choice([3, 60, 200]))]
    rows = [*traces, *chance.choices(traces, k=5)]
    rows += [{**each, "outcome": {"confidence": 0.125}} for each in chance.choices(traces, k=5)]
    rows += [{**each, "metadata": {**each["metadata"], "agent_id": "z"}} for each in traces[:2]]
    faulty = [row for row in _IN_PARQUET if row["outcome"] is not None]
    rows += [{**row, "source_skill": "s"} for row in chance.sample(faulty, k=20)]
    chance.shuffle(rows)
    return rows


def tables_of(settings: Settings) -> dict[str, Any] | None:
    """The profiles as tables."""
    return {
        name: [
            dict(zip(DIMENSIONS, weights, strict=True)) | ({"from": begin} if begin else {})
            for begin, weights in versions
        ]
        for name, versions in settings.profiles.items()
    } or None


def score_as(traces: Any, settings: Settings) -> kp.ScoredFrame:
    return kp.score(
        traces,
        embedder=settings.embedder,
        cache_size=settings.cache_size,
        ttl=settings.ttl,
        cache_by=settings.cache_by,
        threshold=settings.threshold,
        profiles=tables_of(settings),
    )


def run_over(folder: Path, file: Path, settings: Settings) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The views scores, in replay order, and rejects of a warehouse over one file."""
    run = config(
        folder,
        file,
        warehouse=folder / f"warehouse-{file.suffix[1:]}",
        embedder=settings.embedder,
        cache_size=settings.cache_size,
        ttl=ttl_text(settings.ttl),
        cache_by=settings.cache_by,
        threshold=settings.threshold,
        profiles=_file_of(settings, folder),
        max_reject_share=1,
    )
    rescore_archive(run)
    scores, rejects = "FROM scores ORDER BY created_at, trace_id", "FROM rejects ORDER BY row"
    return ask(run.warehouse, scores), ask(run.warehouse, rejects)


def assert_as_run(
    scored: kp.ScoredFrame, run: tuple[pl.DataFrame, pl.DataFrame], *, raw: bool = True
) -> None:
    """Equal to the bit, and so are the rejects, but for messages that name a file."""
    scores, rejects = run
    assert set(scores.columns) - set(scored.columns) == {"source_file", "run_id"}
    assert [name for name in scores.columns if name in COLUMNS] == list(COLUMNS)
    wanted = scores.select(COLUMNS).cast({"created_at": pl.Datetime("us", "UTC")})
    assert_frame_equal(scored.select(COLUMNS), wanted, check_exact=True)
    names = ["row", "trace_id", "task_domain", "reasons", *(["raw"] if raw else [])]
    assert_frame_equal(scored.rejects.select(names), rejects.select(names))
    named = [["superseded"], ["malformed_json"]]
    pairs = zip(scored.rejects["message"], rejects["message"], rejects["reasons"], strict=True)
    if raw:  # which has the values that messages show
        assert all(mine == theirs for mine, theirs, codes in pairs if codes.to_list() not in named)


def assert_as_oracle(scored: kp.ScoredFrame, rows: list[Any], settings: Settings) -> None:
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    count = counted(observed({}, {"a.jsonl": content}, prune=False))
    wanted = replayed(count.accepted, settings)
    assert scored["row"].to_list() == [row.row for row in count.accepted]
    unstated = {"vector", "source_file", "encoder_id", "cache_id", "profile_id", "row"}
    assert_same(scored.to_dicts(), wanted, unstated)
    mine = scored.rejects.select("row", pl.col("reasons").list.sort()).rows()
    assert sorted(mine) == sorted((row.row, sorted(row.reasons)) for row in count.rejected)
    assert (scored.counts["rows"], scored.counts["duplicates"]) == (count.rows, count.duplicates)


@pytest.mark.slow
@pytest.mark.telling
@pytest.mark.parametrize("seed", range(6, 6 + EXAMPLES))  # the first two: in groups, and in none
def test_law_it_equals_a_run_over_the_same_rows_as_parquet_and_as_jsonl(
    tmp_path: Path, left: Path, seed: int
) -> None:
    chance = random.Random(seed)
    rows = drawn_rows(chance)
    settings = _settings(chance)
    settings = Settings(
        **{
            **vars(settings),
            "embedder": chance.choice(["hashing", "hashing", "none"]),
            "cache_by": chance.choice([(), ("agent_id",), ("framework", "task_domain")]),
        }
    )
    by_kind = {name: score_as(make(rows), settings) for name, make in KINDS.items()}
    for name, scored in by_kind.items():
        assert_frame_equal(pl.DataFrame(scored), pl.DataFrame(by_kind["polars"]), check_exact=True)
        assert_no_path(scored, left)
        assert scored.counts == by_kind["polars"].counts, name
    parquet = run_over(tmp_path, write_parquet(tmp_path / "rows.parquet", rows), settings)
    jsonl = run_over(tmp_path, write_jsonl(tmp_path / "rows.jsonl", rows), settings)
    for name, scored in by_kind.items():
        # A frame of pandas has no columns that hold nothing, and whole numbers with gaps are none.
        assert_as_run(scored, parquet, raw=name not in {"mappings", "pandas"})
        assert_as_run(scored, jsonl, raw=name == "mappings")
    assert_as_oracle(by_kind["mappings"], rows, settings)


@pytest.mark.slow
def test_rows_that_only_json_can_hold_equal_a_run_over_them(tmp_path: Path) -> None:
    rows = [
        *(trace(id=number, objective="o") for number in (10**30, -5, 0)),
        trace(id="s", objective="\ud800 \udfff", steps=[step(content="\ud83d")]),
        trace(
            id="n", steps=[step(content=5), step(content={"a": [1.5, None]}), step(content=True)]
        ),
        *(trace(id=f"c{number}", confidence=number) for number in (1, 10**400, math.nan, "0.5")),
        trace(id="k", metadata=None),
        trace(id=1.5),
        trace(success="yes"),
        {},
    ]
    settings = Settings(cache_size=3, ttl=HOUR)
    run = run_over(tmp_path, write_jsonl(tmp_path / "rows.jsonl", rows), settings)
    assert_as_run(score_as(rows, settings), run)


def golden(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text("utf-8").splitlines()]


def assert_as_live(scored: kp.ScoredFrame, name: str) -> None:
    """The live engine's own numbers; its novelty may be outside of 0 to 1."""
    wanted = {row["id"]: row for row in golden(f"expected_{name}.jsonl")}
    assert len(scored) == len(wanted)
    for row in scored.iter_rows(named=True):
        live = wanted[row["trace_id"]]
        assert math.isclose(row["novelty"], min(max(live["novelty"], 0), 1), abs_tol=1e-6)
        if 0 <= live["novelty"] <= 1:
            assert math.isclose(row["score"], live["score"], abs_tol=1e-6)


@pytest.mark.slow
def test_the_scores_are_the_live_engines_without_an_embedder() -> None:
    assert_as_live(kp.score(golden("traces.jsonl"), embedder="none"), "no_embedder")


@pytest.mark.model
@pytest.mark.telling
def test_the_scores_are_the_live_engines_by_its_model() -> None:
    traces = pl.DataFrame(pa.Table.from_pylist(golden("traces.jsonl")))
    assert_as_live(kp.score(traces), "cap1000")


def test_the_times_of_a_frame_are_in_utc() -> None:
    at = datetime(2026, 1, 5, 9, tzinfo=UTC) - timedelta(hours=1)
    frame = pl.DataFrame([trace(created_at=at)]).with_columns(
        pl.col("metadata").struct.with_fields(
            pl.field("created_at").dt.convert_time_zone("Asia/Tokyo").dt.cast_time_unit("ns")
        )
    )
    assert kp.score(frame, embedder="none")["created_at"].item() == at
