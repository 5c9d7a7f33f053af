"""One trace explained: what it was, its score as a sum, its nearest traces, and its past."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.cli.options import json_line
from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import WarehouseError, explain_fixable
from kp_batch.operations.explain import explain, find_trace
from kp_batch.operations.explanation import Explanation, ScoreChanges
from kp_batch.operations.forget import forget
from kp_batch.operations.neighbours import TraceContent, diff_contents, diff_texts
from kp_batch.operations.preview import preview
from kp_batch.operations.rollback import rollback
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.vacuum import vacuum
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.snapshot import published
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.hourly import of_several_caches, said, settings_of, write
from tests.support.make.profiles import always, undated
from tests.support.make.publications import publish_tables
from tests.support.processes.commands import invoke
from tests.support.read.folders import contents, keep, restore
from tests.support.read.queries import ask_rows
from tests.support.read.schemas import TypeAdapter

pytestmark = pytest.mark.slow


def explained(folder: Path, name: str) -> Explanation:
    return explain(folder / "warehouse", name)


def without_an_encoder(folder: Path) -> None:
    write(folder, *range(8))
    rescore_archive(settings_of(folder, embedder="none"))


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a warehouse, made in one of the ways above."""
    folder = tmp_path_factory.mktemp("made")
    request.param(folder)
    return folder


@pytest.mark.parametrize("made", [of_several_caches, without_an_encoder], indirect=True)
def test_every_trace_is_explained_as_it_was_scored(made: Path) -> None:
    settings = settings_of(made)
    rows = ask_rows(settings.warehouse, "SELECT * FROM scores USING SAMPLE 8 ROWS (reservoir, 7)")
    names = [name for name, *_ in ask_rows(settings.warehouse, "DESCRIBE scores")]
    for values in rows:
        row = dict(zip(names, values, strict=True))
        explanation = explained(made, row["trace_id"])
        assert (explanation.unread, len(explanation.steps or ())) == (None, row["n_steps"])
        assert explanation.breakdown.score == explanation.by_profile[row["profile"]] == row["score"]
        assert explanation.breakdown.composite == row["composite"]
        assert [term.value for term in explanation.breakdown.terms] == [
            row[dimension] for dimension in DIMENSIONS
        ]
        assert (explanation.counts.n_steps, explanation.counts.n_tools) == (
            row["n_steps"],
            row["n_tools"],
        )
        assert (explanation.cache.size if explanation.cache else 0) == row["cached_vectors"]
        assert explanation.cache_group == row["cache_group"]
        if row["nearest_trace_id"]:
            first = explanation.neighbours[0]
            nearest = (first["trace_id"], first["similarity"], first["age_s"])
            assert nearest == (row["nearest_trace_id"], row["max_similarity"], row["nearest_age_s"])
            assert explanation.neighbours_caveat is None
        else:
            assert explanation.neighbours_caveat is not None
        assert [entry["score"] for entry in explanation.history] == [row["score"]]
        assert str(explanation)


@pytest.mark.telling
@pytest.mark.parametrize("made", [of_several_caches], indirect=True)
@pytest.mark.parametrize(
    ("name", "cache"), [("t32", " of agent_id y, no host"), ("t30", " of agent_id y, host a")]
)
def test_the_cache_of_a_group_is_named(made: Path, name: str, cache: str) -> None:
    explanation = explained(made, name)
    assert f"compared with 2 traces in the cache{cache}, which holds 2" in str(explanation)
    assert explanation.cache is not None
    assert explanation.cache.oldest == f"2026-01-{5 + int(name[1:]) - 18:02}T08:00:00+00:00"


@pytest.mark.telling
@pytest.mark.model
def test_a_text_that_is_cut_at_its_encoders_window_is_reported_as_cut(tmp_path: Path) -> None:
    words = {"whole": "fix " * 510, "cut": "fix " * 511}  # and the two special pieces
    traces = [trace(id=name, objective=text, steps=[step()]) for name, text in words.items()]
    write_jsonl(tmp_path / "archive" / "a.jsonl", traces)
    rescore_archive(settings_of(tmp_path, embedder="minilm"))
    explanations = {name: explained(tmp_path, name) for name in words}
    assert {name: explanation.is_cut for name, explanation in explanations.items()} == {
        "whole": False,
        "cut": True,
    }
    line = "  text       longer than its encoder's window, which reads its beginning alone"
    assert line in str(explanations["cut"]).splitlines()
    assert line not in str(explanations["whole"]).splitlines()


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eight") / "made"
    for numbers in ([0], [1], range(2, 8)):
        write(folder, *numbers, name=f"{numbers[0]}.jsonl")
    rescore_archive(settings_of(folder, cache_size=100))
    keep(folder)
    return folder


@pytest.fixture
def eight(once: Path) -> Path:
    """A warehouse of eight traces out of three files, scored by one run."""
    restore(once)
    return once


@pytest.mark.telling
def test_the_five_nearest_are_shown_with_what_they_share(eight: Path) -> None:
    explanation = explained(eight, "t7")  # sum all rows
    assert [neighbour["trace_id"] for neighbour in explanation.neighbours] == [
        "t1",
        "t0",
        "t2",
        "t4",
        "t3",
    ][: len(explanation.neighbours)] or len(explanation.neighbours) == 5
    similarities = [neighbour["similarity"] for neighbour in explanation.neighbours]
    assert similarities == sorted(similarities, reverse=True)
    first = explanation.neighbours[0]
    assert first["trace_id"] == "t1"
    assert "".join(span.text for span in first["own_text"]) == "sum all rows sum all rows "
    assert "".join(span.text for span in first["text"]) == "sum the rows sum the rows "
    assert first["age_s"] == 6 * 3600
    assert explanation.cache is not None
    assert (explanation.cache.size, explanation.cache.capacity, explanation.cache.ttl) == (
        7,
        100,
        "none",
    )
    assert explanation.cache.domains == {"code": 7}
    shown = str(explanation)
    assert "compared with 7 traces in the cache, which holds 100, with no ttl" in shown
    assert "  7 of these 7 are of its own domain, code: 100.0%" in shown.splitlines()
    assert "of its own domain" not in str(explained(eight, "t0"))
    assert "sum all« rows sum »all rows" in shown
    assert "             shared with " not in shown


def test_the_share_of_the_traces_domain_in_its_cache_is_shown(tmp_path: Path) -> None:
    write(tmp_path, *range(3))
    write(tmp_path, 3, name="rare.jsonl", task_domain="legal")
    write(tmp_path, 4, name="later.jsonl")
    rescore_archive(settings_of(tmp_path, cache_size=9))
    for name, line in (("t3", "0 of these 3"), ("t4", "3 of these 4")):
        domain, share = ("legal", "0.0%") if name == "t3" else ("code", "75.0%")
        told = f"  {line} are of its own domain, {domain}: {share}"
        assert told in str(explained(tmp_path, name)).splitlines()


words = st.lists(st.sampled_from(["fix", "the", "import", ",", "now"]), max_size=12).map(" ".join)


@given(words, words)
def test_law_the_pieces_are_the_texts_and_share_the_same_parts(left: str, right: str) -> None:
    first, second = diff_texts(left, right)
    assert "".join(span.text for span in first) == left
    assert "".join(span.text for span in second) == right
    assert [span.text for span in first if span.shared] == [
        span.text for span in second if span.shared
    ]
    if left == right and sum(word.isalpha() for word in left.split()) > 1:
        assert all(span.shared for span in first)


@pytest.mark.telling
def test_a_text_that_cannot_be_read_again_is_reported_with_the_reason(eight: Path) -> None:
    (eight / "archive" / "0.jsonl").unlink()
    write(eight, 1, name="1.jsonl", objective="other words")
    for name, unread in (("t0", "gone"), ("t1", "changed"), ("t2", None)):
        explanation = explained(eight, name)
        assert (explanation.unread, explanation.objective is None) == (unread, unread is not None)
        assert explanation.breakdown.score == explanation.by_profile["code"]
        assert (explanation.counts.n_types is None) == (unread is not None)
    assert {neighbour["unread"] for neighbour in explanation.neighbours} == {"gone", "changed"}
    shown = str(explained(eight, "t0"))
    assert "cannot be read again: its file is gone from the archive" in shown


def test_the_history_shows_what_each_run_changed(tmp_path: Path) -> None:
    write(tmp_path, 0, 2)
    settings = settings_of(tmp_path)
    rescore_archive(settings)
    write(tmp_path, 1, name="late.jsonl", objective="fix the export")
    rescore_archive(settings)
    weights = {"complexity": 0.7, "novelty": 0.1, "tool_diversity": 0.1, "outcome_confidence": 0.1}
    code = replace(undated()["code"], **weights)
    profiles = undated() | {"code": code, "legal": replace(code, name="legal")}
    rescore_archive(settings.model_copy(update={"profiles": always(profiles)}))
    numbered = ask_rows(settings.warehouse, "SELECT run_id FROM runs ORDER BY number DESC")
    runs = [name for (name,) in numbered]
    history = explained(tmp_path, "t0").history
    assert [entry["run_id"] for entry in history] == [runs[0], runs[2]]
    assert history[0]["change"] == history[0]["score"] - history[1]["score"]
    assert history[0]["from_weights"] == history[0]["change"] != 0
    assert history[1]["change"] is None
    [reason] = history[0]["reasons"]  # no word of legal
    assert "weights of code" in reason
    second = explained(tmp_path, "t2").history
    assert [entry["run_id"] for entry in second] == runs
    assert second[1]["from_novelty"] != 0
    for entry in (*history, *second):
        if entry["change"] is not None:
            parts = (value for name, value in entry.items() if name.startswith("from_"))
            assert sum(part or 0 for part in parts) == pytest.approx(entry["change"], abs=1e-15)
    assert "weights of code" in str(explained(tmp_path, "t0"))
    vacuum(tmp_path / "warehouse", timedelta(0), datetime.now(UTC) + timedelta(days=1))
    assert [entry["change"] for entry in explained(tmp_path, "t0").history] == [None]


def test_the_past_has_the_scores_that_were_rolled_back(tmp_path: Path) -> None:
    settings, warehouse = settings_of(tmp_path), tmp_path / "warehouse"
    write(tmp_path, 5, name="other.jsonl")
    write(tmp_path, 0)
    first = rescore_archive(settings).run_id or ""
    write(tmp_path, 0, confidence=0.1)
    second = rescore_archive(settings).run_id or ""
    scores = {run: explained_as_of(tmp_path, run) for run in (first, second)}
    assert scores[first] != scores[second]
    back = rollback(warehouse, first).run_id

    def past() -> list[tuple[str, float]]:
        return [(entry["run_id"], entry["score"]) for entry in explained(tmp_path, "t0").history]

    known = [(back, scores[first]), (second, scores[second]), (first, scores[first])]
    assert past() == known
    [newest, *_] = explained(tmp_path, "t0").history
    assert newest["change"] == scores[first] - scores[second]
    assert newest["reasons"][0] == f"rollback from run {second} to run {first}"
    (tmp_path / "archive" / "a.jsonl").unlink()
    rescore_archive(settings.model_copy(update={"prune": True, "max_removed": "100%"}))
    last = rollback(warehouse, second).run_id
    assert past() == [(last, scores[second]), *known]


def test_the_past_of_a_candidates_score_begins_with_the_candidate(eight: Path) -> None:
    before = explained(eight, "t0")
    weights = {"complexity": 0.7, "novelty": 0.1, "tool_diversity": 0.1, "outcome_confidence": 0.1}
    profiles = undated() | {"code": replace(undated()["code"], **weights)}
    preview(settings_of(eight, profiles=always(profiles)))
    staged = explain(eight / "warehouse", "t0", candidate=True)
    first, *earlier = staged.history
    assert earlier == [*before.history]
    assert first["score"] == staged.breakdown.score != before.breakdown.score
    assert first["change"] == first["from_weights"] == first["score"] - before.breakdown.score
    assert explained(eight, "t0") == before


def explained_as_of(folder: Path, run: str) -> float:
    scores = published(folder / "warehouse", run).scan("scores").filter(trace_id="t0")
    return scores.collect().get_column("score").item()


@pytest.mark.telling
def test_a_terminal_shows_the_last_ten_runs_of_the_past(eight: Path) -> None:
    explanation = explained(eight, "t0")
    [entry] = explanation.history
    shown = str(replace(explanation, history=ScoreChanges([entry] * 12)))
    assert "  2 earlier runs: see --json, or history in Python" in shown.splitlines()
    assert shown.count(f"{entry['score']:.4f}\n") >= 10
    ten = replace(explanation, history=ScoreChanges([entry] * 10))
    assert "earlier run" not in str(ten)


def test_the_past_ends_where_the_manifest_of_a_run_is_gone_or_damaged(eight: Path) -> None:
    rescore_archive(settings_of(eight, cache_size=1))
    before = explained(eight, "t0").history
    assert len(before) == 2
    manifest = require_manifest(eight / "warehouse")
    path = eight / "warehouse" / "log" / f"{manifest.before}.json"
    for damage in (lambda: path.write_text("{}"), path.unlink):
        damage()
        [entry] = explained(eight, "t0").history
        assert (entry["run_id"], entry["score"]) == (before[0]["run_id"], before[0]["score"])


@pytest.mark.telling
def test_vectors_that_are_lost_are_reported(eight: Path) -> None:
    shutil.rmtree(eight / "warehouse" / "vectors")
    explanation = explained(eight, "t3")
    assert explanation.neighbours_caveat == (
        "the vectors are not stored any more; a run that replays it makes them again"
    )
    assert (explanation.neighbours, explanation.cache and explanation.cache.size) == ((), 3)
    assert explanation.neighbours_caveat in str(explanation)


BEGINNINGS = ("x", "xy", "kp:trace:zw", "kp:trace:z")
ODD = "\x1b[31mred\x07\nsecond line " + "long " * 400


@pytest.fixture(scope="module")
def with_ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a warehouse of odd ids, one of them forgotten, and of rejected ones."""
    folder = tmp_path_factory.mktemp("ids")
    ids = ("kp:trace:a1", "kp:trace:a2", "kp:trace:b", "hidden", "ab", *BEGINNINGS)
    rows = [said(number, "words", id=trace_id) for number, trace_id in enumerate(ids)]
    late = said(1, "words", id="abc", created_at="9999-12-31T23:59:59-01:00")
    refused = [said(5, "x", id="refused", steps=[]), late]
    tools = [step("thought", "a"), step("tool_call", "b", "")]
    unseen = [
        trace(
            id=f"id{number}\x1b",
            objective=ODD,
            task_domain="dom\x1bain",
            agent_id="\x1b",
            created_at=f"2026-01-05T0{number}:00:00Z",
            steps=[step("thought", ODD), *[step("tool_call", ODD, "to\x1bol")] * 20],
        )
        for number in range(3)
    ]
    rows = [*rows, *refused, *unseen, trace(id="t", steps=tools)]
    write_jsonl(folder / "archive" / "a.jsonl", rows)
    rescore_archive(settings_of(folder))
    forget(folder / "warehouse", ["hidden"])
    return folder


@pytest.mark.telling
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "gone",
            "there is no trace 'gone' in .*; list ids: .* --warehouse .*warehouse$",
        ),
        ("", "there is no trace ''"),
        ("kp:trace:a", "matches several traces in .*: kp:trace:a1, kp:trace:a2; write"),
        ("refused", "there is no trace 'refused' in .*: it was rejected, in .*a.jsonl: steps"),
        ("hidden", "there is no trace 'hidden' in .*: it was forgotten"),
    ],
)
def test_a_trace_that_is_not_there_is_reported_with_the_reason(
    with_ids: Path, name: str, message: str
) -> None:
    with pytest.raises(WarehouseError, match=message):
        explained(with_ids, name)


@pytest.mark.telling
def test_an_id_may_be_written_without_its_scheme(with_ids: Path) -> None:
    assert explained(with_ids, "a1").trace_id == "kp:trace:a1"
    assert explained(with_ids, "kp:trace:b").trace_id == "kp:trace:b"


@pytest.mark.telling
@pytest.mark.parametrize(("name", "trace_id"), [("x", "x"), ("z", "kp:trace:z")])
def test_an_id_that_another_one_begins_with_is_meant_itself(
    with_ids: Path, name: str, trace_id: str
) -> None:
    assert explained(with_ids, name).trace_id == trace_id


@pytest.mark.telling
def test_a_rejected_trace_of_a_like_name_hides_no_other(with_ids: Path) -> None:
    assert explained(with_ids, "ab").trace_id == "ab"


@pytest.mark.telling
def test_a_tool_without_a_name_is_shown_as_one(with_ids: Path) -> None:
    explanation = explained(with_ids, "t")
    assert [step.tool for step in explanation.steps or ()] == [None, ""]
    assert 'tool_call "": b' in str(explanation)


@pytest.mark.telling
def test_traces_of_the_same_objective_are_counted(with_ids: Path) -> None:
    explanations = [explained(with_ids, name) for name in ("id2", "t")]
    assert [each.same_objective for each in explanations] == [2, 0]
    line = "             shared with 2 other traces"
    shown = [str(each).splitlines() for each in explanations]
    assert [line in lines for lines in shown] == [True, False]
    assert "shared with" not in "\n".join(shown[1])


@pytest.mark.telling
def test_nothing_of_a_trace_reaches_a_terminal_unseen(with_ids: Path) -> None:
    shown = str(explained(with_ids, "id2"))
    assert all(sign.isprintable() or sign == "\n" for sign in shown)
    assert max(map(len, shown.splitlines())) <= 125
    assert "and 9 more steps" in shown
    assert "the same text" in shown


@pytest.mark.telling
def test_a_trace_is_found_whose_facts_are_gone(eight: Path) -> None:
    manifest = require_manifest(eight / "warehouse")
    tables = {name: version for name, version in manifest.tables.items() if name != "facts"}
    publish_tables(eight / "warehouse", replace(manifest, tables=tables))
    explanation = explained(eight, "t2")
    assert (explanation.trace_id, explanation.row) == ("t2", None)


def test_a_text_that_another_one_begins_with_is_shown_where_it_ends() -> None:
    one = "ab " * 300
    own, other = diff_contents(
        TraceContent(facts={"text": one}), TraceContent(facts={"text": f"{one}and more"})
    )
    assert "".join(span.text for span in own or ()).endswith("ab ")
    assert [span.text for span in other or () if not span.shared] == ["and more"]


@pytest.mark.parametrize(
    ("same", "start"), [("ab " * 99, "ab ab"), ("x" * 297, "x" * 100), ("ab ", "ab ")]
)
def test_texts_are_side_by_side_from_shortly_before_they_differ(same: str, start: str) -> None:
    own, other = diff_contents(
        TraceContent(facts={"text": f"{same}is one" + " word" * 200}),
        TraceContent(facts={"text": f"{same}was another"}),
    )
    texts = ["".join(span.text for span in pieces or ()) for pieces in (own, other)]
    assert all(text.startswith(start) for text in texts)
    assert len(texts[0]) == 600
    assert texts[1].endswith("was another")
    assert len(texts[1]) <= len("was another") + 100


@pytest.mark.telling
def test_a_file_that_is_removed_meanwhile_is_named(
    eight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removing(*arguments: Any) -> dict[str, Any]:
        for path in (eight / "warehouse" / "scores").rglob("*.parquet"):
            path.unlink()
        return find_trace(*arguments)

    monkeypatch.setattr("kp_batch.operations.explain.find_trace", removing)
    with pytest.raises(duckdb.Error) as caught:
        explained(eight, "t2")
    error = explain_fixable(caught.value)
    assert isinstance(error, WarehouseError)
    assert re.match(r"a file is missing: .*parquet.*; try again", str(error))


@pytest.mark.telling
def test_the_command_prints_both_forms_and_changes_nothing(eight: Path) -> None:
    warehouse = eight / "warehouse"
    before = contents(warehouse)
    shown = invoke("explain", "t7", "--warehouse", warehouse)
    output = invoke("explain", "t7", "--warehouse", warehouse, "--json").stdout
    expected = explained(eight, "t7")
    assert shown.stdout == str(expected) + "\n"
    assert TypeAdapter(Explanation).validate_json(output, strict=True) == expected
    assert json.loads(json_line(expected)) == json.loads(output)
    missing = invoke("explain", "nobody", "--warehouse", warehouse)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("kp-batch: there is no trace 'nobody' in ")
    assert contents(warehouse) == before
    assert pl.DataFrame(json.loads(output)["steps"]).columns == ["type", "tool", "content"]
