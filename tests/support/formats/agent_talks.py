"""How formats that hold a conversation, and no spans, tell a run of `agent_runs`."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tests.support.formats import atif as harbor
from tests.support.formats import inspect as log
from tests.support.formats import sessions
from tests.support.formats.agent_dialects import Row
from tests.support.formats.agent_runs import Step, result
from tests.support.imports.importing import kp_trace, write_json

# Runs of one model and its tools, one step after the other: no other one is a conversation.
TALKS = (
    "a model, a tool, a model",
    "a call of a model that is tried again",
    "a tool that is tried again",
    "a tool that is asked twice alike",
    "tools at once",
    "a user who says more meanwhile",
)


def talk(run: Sequence[Step]) -> list[Row]:
    """The messages of a run, in OpenAI's shape; a tool's tell whether it failed."""
    messages: list[Row] = []
    for step in run:
        if step.kind == "tool":
            messages.append(result(step.call, step.answer) | {"failed": step.failed})
        elif step.kind == "model" and step.answer:
            asked = [each for each in step.given if each["role"] == "user"]
            messages += [each for each in asked if each not in messages]
            messages.append(step.answer)
    return messages


def _calls(message: Row) -> list[tuple[str, str, Any]]:
    """The id, the name and the arguments of each call of a message."""
    calls = message.get("tool_calls", ())
    named = [(x["id"], x["function"]) for x in calls]
    return [(id_, of["name"], json.loads(of["arguments"])) for id_, of in named]


def claude_code(folder: Path, run: Sequence[Step]) -> None:
    """As a session of Claude Code, a line a block; what is typed meanwhile is an attachment."""
    lines: list[Row] = []
    for place, message in enumerate(talk(run)):
        words, uuid = message["content"], f"line {place}"
        if message["role"] == "tool":
            given = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
            given |= {"content": words, "is_error": message["failed"]}
            lines.append(sessions.user(uuid, [given], place))
        elif message["role"] == "assistant":
            blocks = [sessions.text(words)]
            for id_, name, arguments in _calls(message):
                blocks.append({"type": "tool_use", "id": id_, "name": name, "input": arguments})
            for number, block in enumerate(blocks):
                of = f"message {place}"
                lines.append(sessions.says(f"{uuid}.{number}", block, second=place, of=of))
        elif lines:
            queued = {"type": "queued_command", "commandMode": "prompt", "prompt": words}
            line = sessions.user(uuid, "", place)
            lines.append({**line, "type": "attachment", "attachment": queued})
        else:
            lines.append(sessions.user(uuid, words, place))
    sessions.claude_file(folder, *lines)


def codex(folder: Path, run: Sequence[Step]) -> None:
    """As a session of Codex, whose events have what is typed."""
    begun = [sessions.meta(), sessions.started(1)]
    _rollout(folder, run, begun, lambda words, at: [_message("user", words, at), _typed(words, at)])


def codex_items(folder: Path, run: Sequence[Step]) -> None:
    """As one whose events are items that are complete, which newer ones are."""
    begun = [sessions.meta(), sessions.started(1)]

    def completed(words: str, at: int) -> list[Row]:
        item = {"type": "UserMessage", "content": [sessions.text(words)]}
        return [sessions.event("item_completed", at, item=item)]

    _rollout(folder, run, begun, completed)


def codex_messages(folder: Path, run: Sequence[Step]) -> None:
    """As one without events, up to the turn that messages of the user end."""
    begun = [sessions.meta(), sessions.started(1)]
    _rollout(folder, run, begun, lambda words, at: [_message("user", words, at)])


def _typed(words: str, at: int) -> Row:
    return sessions.asked(words, at)


def _message(role: str, words: str, at: int) -> Row:
    kind = {"user": "input_text", "assistant": "output_text"}[role]
    content = [{"type": kind, "text": words}]
    return sessions.item("message", at, role=role, content=content)


def _rollout(
    folder: Path,
    run: Sequence[Step],
    begun: Sequence[Row],
    typed: Callable[[str, int], list[Row]],
) -> None:
    lines = [*begun]
    for at, message in enumerate(talk(run), 1):
        words = message["content"]
        if message["role"] == "user":
            lines += typed(words, at)
        elif message["role"] == "tool":
            output = {"content": words, "success": not message["failed"]}
            call_id = message["tool_call_id"]
            lines.append(sessions.item("function_call_output", at, call_id=call_id, output=output))
        else:
            lines.append(_message("assistant", words, at))
            for id_, name, arguments in _calls(message):
                call = {"call_id": id_, "name": name, "arguments": json.dumps(arguments)}
                lines.append(sessions.item("function_call", at, **call))
    sessions.rollout(folder, *lines)


def pi(folder: Path, run: Sequence[Step]) -> None:
    """As a session of Pi; what is typed meanwhile steers the model."""
    lines: list[Row] = []
    for place, message in enumerate(talk(run), 1):
        words = [sessions.text(message["content"])]
        if message["role"] == "tool":
            id_, failed = message["tool_call_id"], message["failed"]
            told = sessions.pi_result(id_, words, isError=failed)
        elif message["role"] == "assistant":
            calls = [sessions.pi_call(*each) for each in _calls(message)]
            told = {"role": "assistant", "content": [*words, *calls], "model": "m"}
        else:
            told = {"role": "user", "content": message["content"]}
        above = lines[-1]["id"] if lines else None
        lines.append(sessions.pi(f"line {place}", told, above, place))
    sessions.pi_file(folder, *lines)


def atif(folder: Path, run: Sequence[Step]) -> None:
    """As a trajectory, whose agent's steps hold the results of their calls."""
    steps: list[Row] = []
    for at, message in enumerate(talk(run)):
        words = message["content"]
        if message["role"] == "user":
            steps.append(harbor.user(words, timestamp=harbor.at(at)))
        elif message["role"] == "tool":
            given = {"source_call_id": message["tool_call_id"], "content": words}
            results = steps[-1].setdefault("observation", {"results": []})["results"]
            results.append({**given, "extra": {"is_error": message["failed"]}})
        else:
            calls = [
                {"tool_call_id": id_, "function_name": name, "arguments": arguments}
                for id_, name, arguments in _calls(message)
            ]
            steps.append(harbor.agent(words, timestamp=harbor.at(at), tool_calls=calls))
    write_json(folder / "trajectory.json", harbor.trajectory(*steps))


def inspect(folder: Path, run: Sequence[Step]) -> None:
    """As a log of one sample."""
    write_json(folder / "log.json", log.log(log.sample(messages=_messages(run))))


def scout(folder: Path, run: Sequence[Step]) -> None:
    """As a transcript."""
    folder.mkdir(parents=True)
    row = log.row(messages=json.dumps(_messages(run)))
    pl.DataFrame([row]).write_parquet(folder / "t.parquet")


def _messages(run: Sequence[Step]) -> list[Row]:
    messages: list[Row] = []
    for place, message in enumerate(talk(run)):
        calls = [
            {"id": id_, "function": name, "arguments": arguments}
            for id_, name, arguments in _calls(message)
        ]
        own = {"id": f"message {place}", **message, "tool_calls": calls}
        if own.pop("failed", False):
            own["error"] = {"type": "unknown", "message": message["content"]}
        messages.append(own)
    return messages


def messages(folder: Path, run: Sequence[Step]) -> None:
    """As a row of messages."""
    rows = [_row_of(run)]
    sessions.write(folder / "rows.jsonl", *rows)


def messages_in_parquet(folder: Path, run: Sequence[Step]) -> None:
    """Likewise, the messages in one text."""
    folder.mkdir(parents=True)
    row = _row_of(run)
    pl.DataFrame([{**row, "messages": json.dumps(row["messages"])}]).write_parquet(
        folder / "rows.parquet"
    )


def _row_of(run: Sequence[Step]) -> Row:
    told = [{**message} for message in talk(run)]
    for message in told:
        if message.pop("failed", False):
            message["status"] = "error"
    return {"id": "aa", "created_at": "2026-08-03T09:00:00Z", "messages": told}


def knowledgepulse(folder: Path, run: Sequence[Step]) -> None:
    """As a unit in a registry's export, which has the steps themselves."""
    (question, *messages), steps = talk(run), list[Row]()
    for message in messages:
        kind = {"assistant": "thought"}.get(message["role"], "observation")
        steps.append({"type": kind, "content": message["content"], "role": message["role"]})
        for _, name, arguments in _calls(message):
            called = {"type": "tool_call", "tool": {"name": name}, "input": arguments}
            steps.append({**called, "role": message["role"]})
    numbered = [{"step_id": place, **step} for place, step in enumerate(steps)]
    unit = kp_trace("aa", task={"objective": question["content"]}, steps=numbered)
    write_json(folder / "export.json", {"data": {"knowledge_units": [unit]}})


TALKERS: Mapping[str, Callable[[Path, Sequence[Step]], None]] = {
    "claude-code": claude_code,
    "claude-code by session": claude_code,
    "codex": codex,
    "codex by session": codex,
    "codex with complete items": codex_items,
    "codex without events": codex_messages,
    "pi": pi,
    "pi by session": pi,
    "atif": atif,
    "inspect": inspect,
    "inspect in Parquet": scout,
    "messages": messages,
    "messages in Parquet": messages_in_parquet,
    "knowledgepulse": knowledgepulse,
}
