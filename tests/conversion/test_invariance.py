"""What changes no transcript, in whatever format: a run recorded differently is the same run.

A change is tried on each run that a format can tell. Where formats are missing, they cannot hold
it, and a comment says why.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from kp_batch.conversion.formats import FORMATS
from tests.conversion.unseen import INSERTED, RECORDS, UNSEEN, UNSEEN_PART
from tests.support.formats.agent_files import (
    WRITERS,
    Files,
    Outcome,
    format_of,
    lists_in,
    outcome_of_files,
    outcome_of_run,
    runs_of,
    usual,
)
from tests.support.formats.agent_runs import SYSTEMS, Row, Step
from tests.support.formats.agent_talks import TALKERS, TALKS
from tests.support.formats.sessions import REMINDER, text

SESSIONS = [system for system in TALKERS if format_of(system) in ("claude-code", "codex", "pi")]
OF_OTHER_PARTS = ("phoenix", "OpenInference", "OpenLLMetry", "Strands", "knowledgepulse")
SPEAKERS = {"user", "assistant", "model", "agent"}
DOCUMENTS = [system for system in TALKERS if system not in SESSIONS]


def of(systems: Iterable[str], slow: str = "") -> pytest.MarkDecorator:
    marks = {slow: [pytest.mark.slow]}
    named = [pytest.param(system, marks=marks.get(system, [])) for system in systems]
    return pytest.mark.parametrize("system", named)


def drawn(test: Callable[..., None]) -> Callable[..., None]:
    """A test that draws where something stands."""
    phases = [Phase.reuse, Phase.generate]  # to find a shorter example takes minutes
    return settings(max_examples=12, phases=phases)(hypothesis.given(data=st.data())(test))


def drawn_files(data: st.DataObject, system: str) -> tuple[Files, Outcome]:
    """Those of some run, which may be changed, and what they come to."""
    files, expected = usual(system)[data.draw(st.sampled_from([*usual(system)]))]
    return deepcopy(files), expected


def test_every_format_has_a_writer_and_records() -> None:
    assert FORMATS.keys() == {format_of(system) for system in WRITERS} == RECORDS.keys(), (
        "add it to SYSTEMS or TALKERS, and to NOTHING and UNKNOWN"
    )


@of(TALKERS)
def test_a_conversation_gives_the_same_run_as_spans(system: str) -> None:
    for name in TALKS:
        spans, talk = (json.dumps(usual(x)[name][1]) for x in ("otlp", system))
        # A registry has steps of its own, and no rule makes others of them.
        same = spans.replace("error_recovery", "thought") if system == "knowledgepulse" else spans
        assert talk == same, name


# Conversations tell the arguments of a call at one place alone.
@of(SYSTEMS, slow="phoenix")
def test_arguments_may_be_wrapped_or_completed_in_the_span_of_a_tool(system: str) -> None:
    for name, run in runs_of(system).items():
        for changed in given_otherwise(run):
            assert outcome_of_run(system, changed) == usual(system)[name][1], name


def given_otherwise(run: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """The run with what one tool is given, or each of them, recorded differently."""
    asked = json.dumps([step.answer for step in run if step.kind == "model"])
    tools = [step for step in run if step.kind in ("tool", "retriever")]
    tools = [step for step in tools if not step.given.keys() & {"args", "kwargs"}]
    for changed in [*([tool] for tool in tools), *([tools] if len(tools) > 1 else [])]:
        for way in (wrapped, completed):
            if way is completed and not all(f'"{tool.name}"' in asked for tool in changed):
                continue  # its span alone tells what it is given
            for is_known in (True, False):
                yield [
                    replace(step, given=way(step.given), call=step.call if is_known else "")
                    if step in changed
                    else step
                    for step in run
                ]


def wrapped(given: Row) -> Row:
    return {"args": [], "kwargs": given}


def completed(given: Row) -> Row:
    return {"by default": None, **given, "far": False}


LACKS = ("left out", None, "")


@of(WRITERS, slow="phoenix")
def test_the_ids_of_calls_may_be_missing_in_any_row(system: str) -> None:
    """In all rows in each way, and in each row alone in one of these by turns."""
    for number, (name, run) in enumerate(runs_of(system).items()):
        files, expected = usual(system)[name]
        ids = {step.call for step in run} - {""}
        places = [(file, place) for file in files for place in range(len(files[file]))]
        alone = [([place], LACKS[(number + n) % 3]) for n, place in enumerate(places)]
        for changed, lack in [*alone, *((places, lack) for lack in LACKS)]:
            lacking = deepcopy(files)
            for file, place in changed:
                lacking[file][place] = without_ids(files[file][place], ids, lack)
            assert outcome_of_files(system, lacking) == expected, name


def without_ids(value: Any, ids: Collection[str], lack: str | None) -> Any:
    """A value in which no key has one of these ids, be it within JSON in a text."""
    if isinstance(value, dict):
        items = [(key, without_ids(each, ids, lack)) for key, each in value.items()]
        return {key: each for key, each in items if each != "left out"}
    if isinstance(value, list):
        return [without_ids(each, ids, lack) for each in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.dumps(without_ids(json.loads(value), ids, lack))
    return lack if isinstance(value, str) and value in ids else value


# Spans, prompts, turns and traces without an id are refused; a message of Claude Code alone tells
# by its id that it has several lines, and a registry's steps have numbers of their own.
# Entries of Pi are below each other by their ids.
@of(name for name in TALKERS if format_of(name) not in ("knowledgepulse", "pi"))
def test_the_ids_of_lines_steps_and_messages_may_be_missing(system: str) -> None:
    for name, (files, expected) in usual(system).items():
        changed = {file: [nameless(system, row) for row in files[file]] for file in files}
        assert outcome_of_files(system, changed) == expected, name


def nameless(system: str, row: Row) -> Row:
    """A row without the ids of such parts."""
    if format_of(system) == "claude-code":
        is_typed = row.get("type") == "user" and "tool_result" not in json.dumps(row)
        origin = without(row.get("forkedFrom", {}), "messageUuid")
        return row if is_typed else without(row, "uuid") | {"forkedFrom": origin}
    if format_of(system) == "codex":
        is_item = row.get("type") == "response_item"
        return {**row, "payload": without(row["payload"], "id")} if is_item else row
    if system == "atif":
        return {**row, "steps": [without(step, "step_id") for step in row["steps"]]}
    if system == "inspect in Parquet":
        messages = [without(message, "id") for message in json.loads(row["messages"])]
        return {**row, "messages": json.dumps(messages)}
    if format_of(system) == "messages":
        return without(row, "id")
    if system == "inspect":
        (sample,) = row["samples"]
        messages = [without(message, "id") for message in sample["messages"]]
        return {**row, "samples": [{**without(sample, "uuid"), "messages": messages}]}
    raise AssertionError(f"say here where {system} has its ids")


def without(row: Row, name: str) -> Row:
    return {key: each for key, each in row.items() if key != name}


@pytest.mark.parametrize("is_first", [True, False])
@of(WRITERS)
def test_unknown_keys_may_be_in_any_object(system: str, *, is_first: bool) -> None:
    for name in runs_of(system):
        files, expected = usual(system)[name]
        changed = {
            file: [extended(row, is_first=is_first) for row in files[file]] for file in files
        }
        assert outcome_of_files(system, changed) == expected, name


# What tools are given and give back may have any key; blocks of Converse have one, and so has what
# LangSmith puts around a result.
CLOSED = {"at", "far", "place", "query", "kwargs", "result", "toolUse", "toolResult"}


def extended(value: Any, *, is_first: bool) -> Any:
    """A value with one more key in each object, be it within JSON in a text."""
    if isinstance(value, list):
        return [extended(each, is_first=is_first) for each in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.dumps(extended(json.loads(value), is_first=is_first))
    if not isinstance(value, dict) or value.keys() & CLOSED:
        return value
    if value.keys() in ({"text"}, {"output"}):
        return value
    inner = {key: extended(each, is_first=is_first) for key, each in value.items()}
    return {"x_new": UNSEEN, **inner} if is_first else {**inner, "x_new": UNSEEN}


# OpenInference, OpenLLMetry and Strands tell parts in forms of their own, and registries have none.
@pytest.mark.parametrize("is_first", [True, False])
@of(name for name in WRITERS if not name.endswith(OF_OTHER_PARTS))
def test_unknown_parts_may_be_in_any_message(system: str, *, is_first: bool) -> None:
    count = 0
    for name in runs_of(system):
        files, expected = usual(system)[name]
        changed = {file: [parted(row, is_first=is_first) for row in files[file]] for file in files}
        count += changed != files
        assert outcome_of_files(system, changed) == expected, name
    assert count > 1


def parted(value: Any, *, is_first: bool) -> Any:
    """A value in which each message is in parts, be it within JSON in a text."""
    if isinstance(value, list):
        return [parted(each, is_first=is_first) for each in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.dumps(parted(json.loads(value), is_first=is_first))
    if not isinstance(value, dict):
        return value
    inner = {key: parted(each, is_first=is_first) for key, each in value.items()}
    is_message = not {value.get("role"), value.get("source")}.isdisjoint(SPEAKERS)
    for key in inner.keys() & {"content", "parts", "message"} if is_message else ():
        words = [text(inner[key])] if isinstance(inner[key], str) else inner[key]
        inner[key] = [UNSEEN_PART, *words] if is_first else [*words, UNSEEN_PART]
    return inner


# In Parquet the messages are those of the other files, in one text.
@of(name for name in WRITERS if name not in ("inspect in Parquet", "messages in Parquet"))
@drawn
def test_records_that_count_for_nothing_may_be_added_and_removed_anywhere(
    system: str, data: st.DataObject
) -> None:
    files, expected = drawn_files(data, system)
    before = deepcopy(files)
    for records in lists_in(system, files):
        first = format_of(system) == "pi"  # whose first line is its header
        for place in data.draw(st.lists(st.integers(first, len(records)), max_size=4)):
            records.insert(place, data.draw(st.sampled_from(RECORDS[format_of(system)])))
    assert outcome_of_files(system, files) == expected
    if system == "messages":
        return  # a row of other messages is another trace
    # What an archive has of a file still counts where it is read anew without them.
    both = {f"then/{file}": rows for file, rows in files.items()}
    assert (
        outcome_of_files(system, both | {f"now/{file}": rows for file, rows in before.items()})
        == expected
    )


# Other systems insert nothing into what is typed.
@of(SESSIONS)
@drawn
def test_what_a_tool_inserts_into_a_prompt_is_no_part_of_it(
    system: str, data: st.DataObject
) -> None:
    files, expected = drawn_files(data, system)
    for holder, name in typed_in(files):
        words, more = holder[name], data.draw(st.sampled_from(INSERTED[format_of(system)]))
        is_plain = not words.lstrip().startswith(("<", "#"))
        if format_of(system) == "codex":  # whose apps put all before
            holder[name] = f"{more if is_plain else ''}{words}"
        else:
            between = st.integers(0, len(words)) if is_plain else st.sampled_from([0, len(words)])
            place = data.draw(between)
            holder[name] = f"{words[:place]}{more}{words[place:]}"
            if name == "content" and data.draw(st.booleans()):
                holder[name] = [text(more), text(words), text(more)]
    assert outcome_of_files(system, files) == expected


def typed_in(files: Files) -> Iterator[tuple[Row, str]]:
    """What holds each text that a user typed, and the key of it."""
    for row in (row for rows in files.values() for row in rows):
        payload, attached = row.get("payload", {}), row.get("attachment", {})
        if attached.get("commandMode") == "prompt":
            yield attached, "prompt"
        elif payload.get("type") == "user_message":
            yield payload, "message"
        holder = payload.get("item", payload) if payload else row.get("message", {})
        is_users = holder.get("role") == "user" or holder.get("type") == "UserMessage"
        if is_users and isinstance(holder.get("content"), str):
            yield holder, "content"
        elif is_users:
            yield from ((part, "text") for part in holder["content"] if part.get("text"))


# Other tools insert nothing into results.
@pytest.mark.parametrize(("above", "below"), [(0, 1), (1, 0), (2, 2)])
def test_reminders_around_results_are_no_part_of_them(above: int, below: int) -> None:
    for name, (files, expected) in usual("claude-code").items():
        changed = deepcopy(files)
        for row in (row for rows in changed.values() for row in rows if row.get("type") == "user"):
            for part in [part for part in row["message"]["content"] if "tool_use_id" in part]:
                if isinstance(part["content"], str):
                    part["content"] = around(part["content"], above, below)
                row["message"]["content"].append(text(REMINDER))
        assert changed != files
        assert outcome_of_files("claude-code", changed) == expected, name


def around(content: str, above: int, below: int) -> str:
    return f"{REMINDER}\n" * above + content + f"\n\n{REMINDER}\n" * below


# A session's lines belong to the prompt above, and a document is one record.
@of(SYSTEMS)
@drawn
def test_spans_may_come_in_any_order_several_times_and_in_several_files(
    system: str, data: st.DataObject
) -> None:
    files, expected = drawn_files(data, system)
    ((name, rows),) = files.items()
    again = data.draw(st.lists(st.sampled_from(rows), max_size=3))
    order = data.draw(st.permutations([*rows, *again]))
    cut = data.draw(st.integers(0, len(order)))
    parts = {f"{part}/{name}": rows for part, rows in enumerate((order[:cut], order[cut:])) if rows}
    assert outcome_of_files(system, parts) == expected


@of(SESSIONS)
@drawn
def test_a_session_may_be_copied_up_to_any_line(system: str, data: st.DataObject) -> None:
    files, expected = drawn_files(data, system)
    beside = data.draw(st.sampled_from(["-before", "z-after"]))
    cuts = {file: data.draw(st.integers(1, len(rows))) for file, rows in files.items()}
    copies = {f"{beside}/{file}": files[file][:cut] for file, cut in cuts.items()}
    if system == "claude-code":  # which goes on with a session in another one
        copies = {f"{file}.jsonl": [*map(resumed, rows)] for file, rows in copies.items()}
    assert outcome_of_files(system, files | copies) == expected


def resumed(line: Row) -> Row:
    return {**line, "sessionId": "another"} if "sessionId" in line else line


@of(DOCUMENTS)
def test_a_document_may_be_copied(system: str) -> None:
    for name, (files, expected) in usual(system).items():
        copies = {f"copy/{file}": rows for file, rows in files.items()}
        assert outcome_of_files(system, files | copies) == expected, name
