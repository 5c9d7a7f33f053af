"""Inspect's logs and Scout's transcripts."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch.bounds import TooLargeError
from kp_batch.conversion.formats import inspect
from kp_batch.conversion.model import Native, SourceRecord, TraceDraft
from kp_batch.errors import UnreadableError
from kp_batch.imports.importing import import_traces
from tests.support.formats.inspect import FIRST, TALK, USER, log, row, sample, write_eval
from tests.support.imports import drafting
from tests.support.imports.drafting import ALWAYS, always, transcript
from tests.support.imports.importing import imported, refusals, write_json

RULES = always(
    success={"score": "match", "at_least": 1},
    confidence={"always": 0.7},
    task_domain={"from": "task", "map": {"sums": "math"}},
)


def drafts(path: Path) -> dict[str, TraceDraft]:
    """The drafts of a file, by their ids."""
    return drafting.drafted("inspect", path).drafts


def drafted(tmp_path: Path, content: dict[str, Any], **rules: Any) -> TraceDraft:
    """The draft of a log's one sample."""
    path = write_json(tmp_path / "log.json", log(content))
    return drafting.drafted("inspect", path, always(**rules)).draft


def steps_of_messages(
    tmp_path: Path, *messages: dict[str, Any], **changes: Any
) -> list[tuple[object, ...]]:
    """The steps of a sample with these messages after the question."""
    return transcript(drafted(tmp_path, sample(messages=[USER, *messages], **changes)))


def test_a_sample_becomes_a_trace(tmp_path: Path) -> None:
    draft = drafted(tmp_path, sample())
    assert draft.id == "kp:trace:one"
    assert draft.created_at
    assert draft.created_at.isoformat() == "2025-01-02T07:04:05.123456+00:00"
    assert draft.objective == "add 1 and 2"
    assert transcript(draft) == [
        ("thought", "I add"),
        ("tool_call", "add", '{"of":[1,2]}'),
        ("observation", '{"is": 3}'),
        ("thought", "3"),
    ]
    assert draft.scores == {"match": 1.0}
    assert draft.fields == {
        "task": ["sums"],
        "dataset": ["d"],
        "model": ["m"],
        "tags": ["t"],
        "metadata.level": ["easy"],
    }
    assert not draft.faults


def test_a_sample_without_a_name_has_its_runs(tmp_path: Path) -> None:
    assert drafted(tmp_path, sample(None)).id == "kp:trace:run/7/2"


def test_the_start_comes_before_the_first_event_and_without_both_there_is_none(
    tmp_path: Path,
) -> None:
    started = drafted(tmp_path, sample(started_at="2025-01-02T00:00:00Z")).created_at
    assert started
    assert started.isoformat() == "2025-01-02T00:00:00+00:00"
    assert drafted(tmp_path, sample(events=[])).created_at is None


def test_without_a_user_there_is_no_objective_unless_a_rule_names_it(tmp_path: Path) -> None:
    alone = sample(messages=TALK[2:], input=[USER])
    assert not drafted(tmp_path, alone).objective
    assert drafted(tmp_path, alone, objective="0.content").objective == "add 1 and 2"


def test_scores_are_numbers_and_grades(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "a": "P",
        "b": "I",
        "c": True,
        "d": 0.25,
        "e": "yes",
        "f": float("nan"),
        "g": [1],
    }
    values["h"] = {"style": "N", "d": 9, "fit": 3, "text": "x"}
    scores = {name: {"value": value} for name, value in values.items()}
    draft = drafted(tmp_path, sample(scores=scores))
    assert draft.scores == {"a": 0.5, "b": 0, "c": 1, "d": 0.25, "style": 0, "fit": 3}


def test_an_old_logs_only_score_has_its_scorers_name(tmp_path: Path) -> None:
    old = log(sample(scores=None, score={"value": "C"}), results={"scorer": {"name": "match"}})
    (draft,) = drafts(write_json(tmp_path / "old.json", old)).values()
    assert draft.scores == {"match": 1.0}


def test_an_invalidated_sample_says_so(tmp_path: Path) -> None:
    invalid = sample(invalidation={"timestamp": "2026-01-01T00:00:00Z", "author": "me"})
    assert drafted(tmp_path, invalid).faults == ["invalidated"]


def test_of_several_copies_the_one_edited_last_counts() -> None:
    edit = {"value": "I", "provenance": {"timestamp": "2026-01-01T00:00:00Z"}}
    edited = {"match": {"value": "I", "history": [{"value": "C"}, edit]}}
    shared = inspect.LogFacts.of(log())
    records = [
        SourceRecord("one", inspect.record_of(content, shared))
        for content in (sample(), sample(scores=edited), sample(scores=None))
    ]
    for order in (records, records[::-1]):
        draft = inspect.draft("one", order, ALWAYS)
        assert draft.scores == {"match": 0.0}


def test_of_copies_that_were_changed_at_once_the_last_counts() -> None:
    one, other = sample(), sample(scores={"match": {"value": "I"}}, messages=TALK[:3])
    for order, value in (([one, other], 0.0), ([other, one], 1.0)):
        records = [
            SourceRecord("one", inspect.record_of(content, inspect.LogFacts.of(log())))
            for content in order
        ]
        assert inspect.draft("one", records, ALWAYS).scores == {"match": value}


def test_a_log_and_its_sample_lead_back_to_the_trace(tmp_path: Path) -> None:
    assert drafted(tmp_path, sample()).native == Native(log="run", sample="7", epoch=2)
    named = log(sample(epoch=1 << 63), eval={"eval_id": "e", "run_id": "run"})
    [draft] = drafts(write_json(tmp_path / "log.json", named)).values()
    assert draft.native == Native(log="e", sample="7")
    scout = row(source_id="e", task_id="7", task_repeat=2)
    [draft] = drafts(write_rows(tmp_path / "t.parquet", scout)).values()
    assert draft.native == Native(log="e", sample="7", epoch=2)


def test_a_sample_that_is_too_large_is_a_record_of_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_json(tmp_path / "log.json", log(sample(messages=[USER] * 10)))
    monkeypatch.setattr(inspect, "record_of", too_large)
    assert [*inspect.records(path, [])] == [SourceRecord("one", None)]


def too_large(*_: object) -> None:
    raise TooLargeError


def test_tags_count_as_edited(tmp_path: Path) -> None:
    path = write_json(tmp_path / "log.json", log(sample(), tags=["late"]))
    assert drafts(path)["kp:trace:one"].fields["tags"] == ["late"]


def test_attachments_are_put_in_their_places(tmp_path: Path) -> None:
    call = {"id": "c", "function": "say", "arguments": {"text": "attachment://b"}}
    parts = [{"type": "text", "text": "tc://a"}, {"type": "text", "text": "attachment://no"}]
    message = {"role": "assistant", "content": parts, "tool_calls": [call]}
    assert steps_of_messages(tmp_path, message, attachments={"a": "long", "b": "words"}) == [
        ("thought", "long\nattachment://no"),
        ("tool_call", "say", '{"text":"words"}'),
    ]


def test_an_old_transcript_has_the_events_and_attachments(tmp_path: Path) -> None:
    old = {"events": [FIRST], "content": {"a": "long"}}
    message = {"role": "assistant", "content": "tc://a"}
    draft = drafted(tmp_path, sample(messages=[USER, message], events=None, transcript=old))
    assert draft.created_at
    assert transcript(draft) == [("thought", "long")]


def test_reasoning_comes_first_and_a_redacted_one_is_its_summary(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "so"},
        {"type": "reasoning", "reasoning": "because"},
        {"type": "reasoning", "reasoning": "gAAAA", "redacted": True, "summary": "in short"},
        {"type": "reasoning", "reasoning": "gBBBB", "redacted": True},
        {"type": "text", "text": "done"},
    ]
    assert steps_of_messages(
        tmp_path,
        {"role": "assistant", "content": parts},
        {"role": "assistant", "content": "end", "reasoning": "old"},
        {"role": "assistant", "content": ""},
    ) == [("thought", "because\nin short\nso\ndone"), ("thought", "old\nend")]


def test_a_tool_that_the_provider_runs_is_called_and_answers(tmp_path: Path) -> None:
    part = {
        "type": "tool_use",
        "tool_type": "mcp_call",
        "id": "t",
        "name": "find",
        "context": "files",
        "arguments": '{"q": 1}',
        "result": "found",
    }
    message = {"role": "assistant", "content": [part, {"type": "text", "text": "look"}]}
    assert steps_of_messages(tmp_path, message) == [
        ("thought", "look"),
        ("tool_call", "files/find", '{"q": 1}'),
        ("observation", "found"),
    ]


def test_results_and_later_users_are_observations(tmp_path: Path) -> None:
    shown = {"type": "image", "image": "data:image/png;base64,AAAA"}
    assert steps_of_messages(
        tmp_path,
        {"role": "tool", "content": ""},
        {"role": "tool", "content": [{"type": "text", "text": "a"}, shown]},
        {"role": "tool", "content": "", "error": {"type": "timeout", "message": "too slow"}},
        {"role": "user", "content": [shown], "tool_call_id": ["c"]},
        {"role": "user", "content": [{"type": "text", "text": "go on"}, shown]},
    ) == [
        ("observation", ""),
        ("observation", "a"),
        ("observation", "too slow"),
        ("observation", "go on"),
    ]


def test_a_summary_in_place_of_earlier_messages_is_no_users(tmp_path: Path) -> None:
    summary = {
        "role": "user",
        "content": "[CONTEXT COMPACTION SUMMARY]\n\nThe following is a summary",
        "metadata": {"summary": True},
    }
    asked = {"role": "user", "content": "go on", "metadata": {"summary": "no"}}
    assert steps_of_messages(tmp_path, TALK[4], summary, asked, TALK[4]) == [
        ("thought", "3"),
        ("observation", "go on"),
        ("thought", "3"),
    ]


def test_a_thought_after_a_failed_tool_is_a_recovery_where_a_rule_says_so(tmp_path: Path) -> None:
    failed = {"role": "tool", "content": "no", "error": {"type": "unknown", "message": "no"}}
    content = sample(messages=[USER, TALK[2], failed, TALK[4]])
    steps = [("thought", "I add"), ("tool_call", "add", '{"of":[1,2]}'), ("observation", "no")]
    assert transcript(drafted(tmp_path, content)) == [*steps, ("thought", "3")]
    recovered = drafted(tmp_path, content, recovery="after_tool_error")
    assert transcript(recovered) == [*steps, ("error_recovery", "3")]


def test_what_an_earlier_run_recorded_is_left_to_it(tmp_path: Path) -> None:
    output = {"choices": [{"message": TALK[2]}]}
    events = [
        FIRST,
        {"event": "span_begin", "id": "p", "type": "prior_run"},
        {"event": "model", "input_refs": [[0, 2]], "output": output},
        {"event": "tool", "message_id": "m2"},
        {"event": "span_end", "id": "p"},
        {"event": "model", "input": TALK, "output": {"choices": [{"message": TALK[4]}]}},
    ]
    content = sample(events=events, events_data={"messages": TALK[:2], "calls": []})
    draft = drafted(tmp_path, content)
    assert draft.objective == "add 1 and 2"
    assert transcript(draft) == [("thought", "3")]


@pytest.mark.parametrize("packed", [ZIP_DEFLATED, 93])
def test_an_eval_file_holds_the_same_samples(tmp_path: Path, packed: int) -> None:
    header = {key: value for key, value in log().items() if key != "samples"}
    members = {"samples/a/b_epoch_2.json": sample(), "summaries.json": [], "header.json": header}
    path = write_eval(tmp_path / "log.eval", members, packed=packed)
    plain = write_json(tmp_path / "log.json", log(sample()))
    assert list(inspect.records(path, [])) == list(inspect.records(plain, []))


def test_a_run_that_goes_on_has_its_finished_samples(tmp_path: Path) -> None:
    members = {"_journal/start.json": log(), "samples/7_epoch_2.json": sample()}
    assert drafts(write_eval(tmp_path / "log.eval", members)).keys() == {"kp:trace:one"}


def test_a_sample_in_chunks_is_put_together(tmp_path: Path) -> None:
    shell = sample(messages=None, events=None, metadata=None)
    folder = "samples/7_epoch_2"
    last_message = {**TALK[4], "content": "attachment://1"}
    members = {
        "header.json": log(),
        f"{folder}/sample.json": {**shell, "message_refs": [[0, 1], [2, 4], [10, 11]]},
        f"{folder}/metadata.json": {"level": "easy"},
        f"{folder}/messages/0.json": [USER, {"id": "x", "role": "user", "content": "grade"}],
        f"{folder}/messages/10.json": [last_message],
        f"{folder}/messages/2.json": [*TALK[2:4], *[TALK[0]] * 6],
        f"{folder}/events/0.json": [FIRST],
        f"{folder}/events/stats.json": {},
        f"{folder}/attachments/0.json": ["other", "the sum is 3"],
    }
    draft = drafts(write_eval(tmp_path / "log.eval", members, packed=93))["kp:trace:one"]
    assert draft.created_at
    assert draft.objective == "add 1 and 2"
    assert [kind for kind, *_ in transcript(draft)] == [
        *("thought", "tool_call", "observation", "thought")
    ]
    assert transcript(draft)[-1] == ("thought", "the sum is 3")
    assert draft.fields["metadata.level"] == ["easy"]


def test_damaged_files_are_no_logs(tmp_path: Path) -> None:
    whole = write_eval(tmp_path / "whole.eval", {"header.json": log()}, packed=93)
    damaged = bytearray(whole.read_bytes())
    damaged[60] ^= 0xFF
    (tmp_path / "bad.eval").write_bytes(damaged)
    with pytest.raises((UnreadableError, BadZipFile)):
        list(inspect.records(tmp_path / "bad.eval", []))
    (tmp_path / "cut.eval").write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(BadZipFile):
        list(inspect.records(tmp_path / "cut.eval", []))


def test_files_of_another_kind_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_bytes(b"")
    write_json(tmp_path / "list.json", [1])
    write_eval(tmp_path / "other.eval", {"a.json": 1})
    write_rows(tmp_path / "other.parquet", {"a": 1})
    for name, why in (
        ("empty.json", r"it is empty \(0 bytes\)"),
        ("list.json", "it is not an Inspect log: it describes no eval"),
        ("other.eval", "it is not an Inspect log: it has no header.json"),
        ("other.parquet", "it has no column transcript_id"),
    ):
        with pytest.raises(UnreadableError, match=f"^{why}$"):
            list(inspect.records(tmp_path / name, []))


def test_a_sample_without_an_id_is_refused(tmp_path: Path) -> None:
    path = write_json(tmp_path / "log.json", log(sample(None, id=None), 1))
    assert drafting.drafted("inspect", path).reasons == [["missing_id"], ["malformed_json"]]


def write_rows(path: Path, *rows: dict[str, Any]) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def test_a_transcript_becomes_a_trace(tmp_path: Path) -> None:
    draft = drafts(write_rows(tmp_path / "t.parquet", row(score_match="I")))["kp:trace:t"]
    assert draft.created_at
    assert draft.created_at.isoformat() == "2026-01-02T03:04:05.500000+00:00"
    assert len(draft.steps) == 4
    assert draft.scores == {"reward": 0.5, "judge": 1, "match": 0, "success": 1}
    assert draft.fields == {"task_set": ["shop"], "sample_metadata.level": ["easy"]}


def test_a_transcript_may_lack_what_others_have(tmp_path: Path) -> None:
    bare = row(transcript_id="u", score='"C"', success=None, date=None, messages=None)
    late = row(transcript_id="v", date=None, events=json.dumps([FIRST]))
    trace_drafts = drafts(write_rows(tmp_path / "t.parquet", bare, late))
    assert trace_drafts["kp:trace:u"].scores == {"score": 1.0}
    assert trace_drafts["kp:trace:u"].created_at is None
    assert trace_drafts["kp:trace:u"].steps == []
    assert trace_drafts["kp:trace:v"].created_at


def test_a_folder_is_imported(tmp_path: Path) -> None:
    source, archive = tmp_path / "source", tmp_path / "archive"
    write_json(source / "a.json", log(sample(), sample("two", scores=None)))
    write_eval(source / "b.eval", {"header.json": log(), "samples/7_epoch_2.json": sample()})
    (source / "c.eval").write_bytes(b"PK")
    done = import_traces(inspect.FORMAT, [str(source)], archive, RULES)
    assert done.traces == 1
    trace = imported(archive)["kp:trace:one"]
    assert trace["task"]["objective"] == "add 1 and 2"
    assert trace["metadata"]["created_at"] == "2025-01-02T07:04:05.123456Z"
    assert trace["metadata"]["task_domain"] == "math"
    assert trace["metadata"]["success"] is True
    assert trace["outcome"]["confidence"] == 0.7
    assert trace["steps"][1]["tool"]["name"] == "add"
    refused = {
        refusal["id"] or Path(refusal["file"]).name: refusal for refusal in refusals(archive)
    }
    assert refused["kp:trace:two"]["reasons"] == ["missing_success"]
    assert refused["c.eval"]["reasons"] == ["unreadable_file"]
