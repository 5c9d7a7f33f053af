"""New traces scored: by themselves, and beside a warehouse, as a run would score them there."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.operations.live import Session
from kp_batch.operations.score import Scored, Unscored, score_lines
from kp_batch.operations.warehouse_cache import Caches, warehouse_cache
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.scoring.profiles import load_profiles
from tests.support.make.archives import lines, trace, write_jsonl
from tests.support.make.hourly import of_several_caches, said, settings_of, write
from tests.support.processes.commands import invoke, kp_batch
from tests.support.read.folders import contents, keep, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def alone(*traces: Any) -> list[Scored | Unscored]:
    return list(score_lines(lines(*traces), load_profiles(), NOON))


def scored_next(
    folder: Path, moment: datetime, *traces: Any, **group: str | None
) -> list[Scored | Unscored]:
    with warehouse_cache(folder / "warehouse", moment, group) as (profiles, meet):
        return list(score_lines(lines(*traces), profiles, moment, meet))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("four")
    write(folder, *range(4))
    rescore_archive(settings_of(folder))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several") / "made"
    of_several_caches(folder)
    keep(folder)
    return folder


@pytest.fixture
def several(made: Path) -> Path:
    """A warehouse of several caches."""
    restore(made)
    return made


@pytest.mark.telling
def test_a_trace_alone_is_scored_as_a_live_engine_scores_its_first() -> None:
    new = trace(task_domain="finance", id=None, created_at=None)
    [scored] = alone(new)
    assert isinstance(scored, Scored)
    assert (scored.line, scored.trace_id, scored.task_domain) == (1, None, "finance")
    assert scored.score == scored.breakdown.score == scored.by_profile["finance"]
    assert scored.breakdown.terms[1].value == 0.5
    assert (scored.max_similarity, scored.neighbours) == (None, ())
    live = Session(embedder="hashing").evaluate(new)
    assert (live.score, live.breakdown) == (scored.score, scored.breakdown)


PROFILE = (
    "[profiles.code]\ncomplexity = 0.1\nnovelty = 0.7\n"
    "tool_diversity = 0.1\noutcome_confidence = 0.1\n"
)


@pytest.mark.parametrize(
    "changes", [{"cache_size": 3}, {"cache_size": 4, "ttl": "2h"}, {"embedder": "none"}], ids=str
)
def test_law_with_a_warehouse_a_trace_gets_the_score_that_a_run_would_give_it(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    write(tmp_path, *range(8))
    (tmp_path / "profiles.toml").write_text(PROFILE)
    settings = settings_of(tmp_path, profiles=str(tmp_path / "profiles.toml"), **changes)
    rescore_archive(settings)
    moment = datetime(2026, 1, 6, 1, 30, tzinfo=UTC)
    words = {"new": "fix the tests", "t3": "sum the rows"}
    traces = [said(0, text, id=name, created_at=moment.isoformat()) for name, text in words.items()]
    before = contents(tmp_path / "warehouse")
    results = [scored_next(tmp_path, moment, new) for new in traces]
    assert contents(tmp_path / "warehouse") == before
    for [scored], new in zip(results, traces, strict=True):
        write_jsonl(tmp_path / "archive" / "b.jsonl", [new])  # in place of the one before
        rescore_archive(settings)
        assert_scored_by_a_run(settings, scored, new["id"])


def assert_scored_by_a_run(settings: RescoreConfig, scored: Scored | Unscored, name: str) -> None:
    [row] = ask_rows(
        settings.warehouse,
        "SELECT score, novelty, composite, max_similarity, nearest_trace_id, nearest_age_s "
        f"FROM scores WHERE trace_id = '{name}'",
    )
    assert isinstance(scored, Scored)
    nearest = scored.neighbours[0] if scored.neighbours else None
    id_and_age = (nearest["trace_id"], nearest["age_s"]) if nearest else (None, None)
    novelty = scored.breakdown.terms[1].value
    assert row == (
        scored.score,
        novelty,
        scored.breakdown.composite,
        scored.max_similarity,
        *id_and_age,
    )
    assert scored.by_profile["code"] == scored.score


def test_law_a_trace_meets_the_cache_of_its_group(
    several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(several, cache_size=2, cache_by="agent_id+host")
    moment = datetime(2026, 2, 1, 1, 30, tzinfo=UTC)
    traces = [
        said(0, words, id=name, agent_id=agent, created_at=moment.isoformat())
        for name, agent, words in (
            ("new", "x", "fix the tests"),
            ("t30", None, "fix the import"),
            ("other", "unheard", "plan a trip"),
            ("t21", "y", "sum the columns"),
            ("t15", "x", "fix the import"),  # as t0, which is gone, though t15 is of another cache
        )
    ]
    calls: list[object] = []
    find = Caches.of
    monkeypatch.setattr(
        Caches, "of", lambda *arguments: calls.append(arguments) or find(*arguments)
    )
    results = scored_next(several, moment, *traces, host="a")
    assert len(calls) == 1  # for all groups
    place = several / "archive" / "host=a" / "z.jsonl"
    for run in (slice(0, 3), slice(3, 5)):  # no trace of a run changes the cache of another one
        write_jsonl(place, traces[run])  # in place of those before
        rescore_archive(settings)
        for scored, new in zip(results[run], traces[run], strict=True):
            assert_scored_by_a_run(settings, scored, new["id"])


@pytest.mark.telling
def test_a_value_that_is_given_counts_before_the_traces_own(several: Path) -> None:
    moment = datetime(2026, 2, 1, tzinfo=UTC)
    new = [said(0, "fix it", id="new", agent_id=agent) for agent in ("x", "y", None)]
    own = scored_next(several, moment, *new, host="a")
    for agent, expected in zip(("x", "y", None), own, strict=True):
        [scored] = scored_next(several, moment, new[0], host="a", agent_id=agent)
        assert scored == replace(expected, line=1)
    assert len({str(result) for result in own}) == 3


@pytest.mark.telling
def test_each_of_several_traces_comes_alone_and_now_means_after_all(four: Path) -> None:
    new = said(0, "something else", id="new")
    now = datetime(2026, 1, 5, 23, tzinfo=UTC)  # of the last trace, after which these come
    first, second = scored_next(four, now, new, {**new, "id": "other"})
    assert isinstance(first, Scored)
    assert isinstance(second, Scored)
    assert first.score == second.score
    assert {neighbour["trace_id"] for neighbour in first.neighbours} == {"t1", "t2"} | {
        neighbour["trace_id"] for neighbour in second.neighbours
    } - {"t1", "t2"}
    assert all(neighbour["age_s"] >= 0 for neighbour in first.neighbours)


@pytest.mark.telling
def test_lines_that_cannot_be_scored_keep_their_order_and_have_all_their_faults() -> None:
    text = lines(trace(id="a"), trace(steps=[], confidence=7), trace(id="c"))
    text.seek(0, 2)
    text.write(b'\n{"half": \n[1]\n')
    text.seek(0)
    results = list(score_lines(text, load_profiles(), NOON))
    assert [result.line for result in results] == [1, 2, 3, 5, 6]
    assert [isinstance(result, Scored) for result in results] == [True, False, True, False, False]
    faults = [result.reasons for result in results if isinstance(result, Unscored)]
    assert faults == [("no_steps", "bad_confidence"), ("malformed_json",), ("malformed_json",)]


@pytest.mark.telling
def test_what_is_nested_too_deep_is_reported_on_its_line(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    done = invoke("score", deep, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["reasons"] == ["too_large"]
    assert "Traceback" not in done.stderr
    assert "the row is too large" in done.stderr.splitlines()[-1]


@pytest.mark.telling
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n \n"])
def test_one_trace_may_be_on_many_lines(before: bytes) -> None:
    text = BytesIO(before + json.dumps(trace(id="a"), indent=2).encode())
    [scored] = score_lines(text, load_profiles(), NOON)
    assert isinstance(scored, Scored)
    assert scored.trace_id == "a"


@pytest.mark.parametrize("created_at", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
def test_a_time_that_no_clock_has_is_not_needed(created_at: str) -> None:
    [scored] = alone(trace(created_at=created_at))
    assert isinstance(scored, Scored)


@pytest.mark.telling
def test_the_lines_after_a_large_one_that_is_cut_are_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kp_batch.operations.score.BATCH_BYTES", 100)
    text = lines(*(trace(id=f"t{number}") for number in range(9)))
    results = list(score_lines(BytesIO(b'{"half": \n' + text.getvalue()), load_profiles(), NOON))
    assert [isinstance(result, Scored) for result in results] == [False, *[True] * 9]
    assert [result.line for result in results] == [*range(1, 11)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1\x15\n\n{\n" * 99, "it is Parquet, not JSON: kp-batch run scores such files"),
        (b"\x1f\x8b\x08\n" * 99, "it is packed by gzip, not lines of JSON: unpack it, as with "),
        (b"id,question\n1,what\n" * 99, "it is text, not JSON: convert it to lines of JSON"),
        (b'[\n{"a": 1},\n{"a": 2}\n]\n', "it is one JSON list, not one trace per line: "),
        (b'[{"a": 1}, {"a": 2}]\n', "it is one JSON list, not one trace per line: "),
        ('{"a": 1}\n'.encode("utf-16"), "its lines are UTF-16, not UTF-8: convert it, as with "),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "traces"
    file.write_bytes(content)
    done = invoke("score", file)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"kp-batch: {file} cannot be scored: {message}")


def test_lines_are_read_as_they_are_scored() -> None:
    class Endless(BytesIO):
        """A stream that never ends."""

        def readline(self, *_: object) -> bytes:
            return line

        def read(self, *_: object) -> bytes:
            raise AssertionError

    line = json.dumps(trace()).encode() + b"\n"
    results = score_lines(Endless(), load_profiles(), NOON)
    assert [next(results).line for _ in range(1_000)][-1] == 1_000


@pytest.mark.telling
def test_the_command_writes_a_line_of_json_for_each_line(
    four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = lines(said(0, "fix it", id="new"), trace(id="bad", steps=[])).getvalue().decode()
    options = ("--warehouse", four / "warehouse", "--at", "2026-01-06T02:00:00+02:00")
    done = invoke("score", "-", *options, "--json", stdin=text)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    first = "kp-batch: 1 of 2 traces cannot be scored, the first on line 2"
    assert (done.returncode, done.stderr) == (1, f"{first}: {answers[1]['message']}\n")
    [expected, _] = scored_next(
        four, datetime(2026, 1, 6, tzinfo=UTC), said(0, "fix it", id="new"), {}
    )
    assert isinstance(expected, Scored)
    assert (answers[0]["score"], answers[0]["line"]) == (expected.score, 1)
    assert answers[1] == {
        "line": 2,
        "trace_id": "bad",
        "reasons": ["no_steps"],
        "message": answers[1]["message"],
    }
    monkeypatch.setenv("KP_BATCH_WAREHOUSE", str(four / "warehouse"))
    assert invoke("score", "-", *options[2:], "--json", stdin=text).stdout == done.stdout
    shown = invoke("score", "-", *options, stdin=text).stdout
    assert f"line 1: new, code: {expected.score:.4f}" in shown
    assert "line 2: bad cannot be scored: steps " in shown


@pytest.mark.telling
@pytest.mark.process
def test_the_command_takes_profiles_and_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(trace()))
    (tmp_path / "profiles.toml").write_text(
        "[profiles.code]\ncomplexity = 0.0\nnovelty = 1.0\n"
        "tool_diversity = 0.0\noutcome_confidence = 0.0\n"
    )
    done = invoke("score", file, "--json", "--profiles", tmp_path / "profiles.toml")
    answer = json.loads(done.stdout)
    assert (answer["breakdown"]["composite"], answer["score"]) == (0.5, 0.5 - 0.1)
    empty = kp_batch("score", "-", stdin="")
    nothing = "kp-batch: there is no trace in <stdin>; give one, or one per line\n"
    assert (empty.returncode, empty.stderr) == (1, nothing)
    for options, message in (
        (("--warehouse", tmp_path, "--at", "soon"), "'soon' is not a time such as 2026-01-31T12"),
        (("--at", "20260131"), "'20260131' is not a time such as 2026-01-31T12"),
        (("--group", "host"), "'host' is not KEY=VALUE, such as host=a"),
        (("--group", "host=a"), "--group needs a warehouse; name it with --warehouse"),
        (("--group", "host=a", "--group", "host=b"), "--group has the same key twice"),
    ):
        wrong = invoke("score", file, *options)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert message in wrong.stderr
    nowhere = invoke("score", file, "--warehouse", tmp_path / "none")
    assert nowhere.returncode == 1
    assert f"{tmp_path / 'none'} is not a warehouse" in nowhere.stderr


@pytest.mark.telling
def test_the_command_takes_the_values_that_no_trace_has(several: Path) -> None:
    new = said(0, "fix it", id="new", agent_id="y")
    text = lines(new).getvalue().decode()
    at = datetime(2026, 2, 1, tzinfo=UTC)
    arguments = ["score", "-", "--warehouse", several / "warehouse", "--at", at.isoformat()]
    for values, group in (
        (["host=b"], {"host": "b"}),
        (["host=", "agent_id=x"], {"host": None, "agent_id": "x"}),
    ):
        options = [word for value in values for word in ("--group", value)]
        [expected] = scored_next(several, at, new, **group)
        assert isinstance(expected, Scored)
        answer = json.loads(invoke(*arguments, *options, "--json", stdin=text).stdout)
        assert answer["max_similarity"] == expected.max_similarity is not None
    for options, message in (
        ([], "a cache for each host, which the trace lacks; give --group host=VALUE"),
        (
            ["--group", "rack=1"],
            "--group: rack is not in the warehouse's cache_by",
        ),
    ):
        wrong = invoke(*arguments, *options, stdin=text)
        assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (1, "", 1)
        assert message in wrong.stderr
