"""The messages of a trace, as the page on training data states them, by plain loops."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def messages_of(trace: Mapping[str, Any], *, thoughts: bool = True) -> list[Json] | None:
    """The messages; None if the trace cannot be written."""
    steps = [_plain(number, step) for number, step in enumerate(trace["steps"])]
    if any(step is None for step in steps):
        return None
    known = [step for step in steps if step and step["kind"] != "nothing"]
    runs = _runs(known)
    while runs and runs[-1][0] == "got" and all(x["kind"] == "user" for x in runs[-1][1]):
        runs.pop()
    if not runs or runs[-1][0] != "acts":
        return None
    last = runs[-1][1]
    if any(step["kind"] == "call" for step in last) or not any(step.get("said") for step in last):
        return None
    names = _names([step for step in known if step["kind"] == "call"], trace["steps"])
    messages = [{"role": "user", "content": trace["task"]["objective"]}]
    if system := trace["task"].get("system"):
        messages.insert(0, {"role": "system", "content": system})
    for place, (kind, run) in enumerate(runs):
        if kind == "got":
            if place == 0 and any(step["kind"] == "result" for step in run):
                return None
            messages += [{"role": "user", "content": x["text"]} for x in run if x["kind"] == "user"]
            continue
        messages += _said(run, names, thoughts=thoughts)
        results = runs[place + 1][1] if place + 1 < len(runs) else []
        found = _results(
            [step for step in run if step["kind"] == "call"],
            [step for step in results if step["kind"] == "result"],
        )
        if found is None:
            return None
        messages += [
            {"role": "tool", "tool_call_id": names[number], "name": name, "content": text}
            for number, name, text in found
        ]
    return messages


def _plain(number: int, step: Any) -> Json | None:
    """What a step is; None if its trace cannot be written."""
    content, kind = _text(step.get("content")), step["type"]
    tool = (step.get("tool") or {}).get("name")
    base = {"number": number, "id": step.get("call_id")}
    if kind == "observation":
        if step.get("role") == "user":
            return {**base, "kind": "user", "text": content} if content else None
        return {**base, "kind": "nothing" if content is None else "result", "text": content}
    if kind == "tool_call" or (kind == "error_recovery" and tool):
        given = _object(step.get("input"))
        is_whole = tool and given is not None
        return {**base, "kind": "call", "name": tool, "given": given} if is_whole else None
    if not content:
        return {**base, "kind": "nothing"}
    length = max(0, step.get("reasoning_chars") or 0)
    said = content[length:]
    if length and said.startswith("\n"):
        said = said[1:]
    return {**base, "kind": "text", "thought": content[:length], "said": said}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _object(given: Any) -> Json | None:
    if isinstance(given, str):
        if not given.strip():
            return {}
        if given.strip()[0] not in "{[":
            return {"input": given}
        try:
            given = json.loads(given)
        except ValueError:
            return None
    return given if isinstance(given, dict) and _is_readable(given, 0) else None


def _is_readable(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth < 100 and all(_is_readable(each, depth + 1) for each in value.values())
    if isinstance(value, list):
        return depth < 100 and all(_is_readable(each, depth + 1) for each in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -(2**63) <= value < 2**64


def _runs(steps: Sequence[Json]) -> list[tuple[str, list[Json]]]:
    """The steps, cut where the assistant begins to act or to get something."""
    runs: list[tuple[str, list[Json]]] = []
    for step in steps:
        kind = "got" if step["kind"] in ("user", "result") else "acts"
        if not runs or runs[-1][0] != kind:
            runs.append((kind, []))
        runs[-1][1].append(step)
    return runs


def _names(calls: Sequence[Json], steps: Sequence[Any]) -> dict[int, str]:
    """The id of each call in the messages, by the number of its step."""
    names: dict[int, str] = {}
    recorded = {step.get("call_id") for step in steps}
    for call in calls:
        name = call["id"]
        if not name or name in names.values():
            number = 1
            while f"call_{number}" in recorded or f"call_{number}" in names.values():
                number += 1
            name = f"call_{number}"
        names[call["number"]] = name
    return names


def _said(run: Sequence[Json], names: Mapping[int, str], *, thoughts: bool) -> list[Json]:
    said = "\n".join(step["said"] for step in run if step.get("said"))
    thought = "\n".join(step["thought"] for step in run if step.get("thought"))
    message: Json = {"role": "assistant", "content": said}
    if thought and thoughts:
        message["reasoning_content"] = thought
    if calls := [step for step in run if step["kind"] == "call"]:
        message["tool_calls"] = [
            {
                "id": names[call["number"]],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["given"]},
            }
            for call in calls
        ]
    is_empty = not said and not calls and "reasoning_content" not in message
    return [] if is_empty else [message]


def _results(calls: Sequence[Json], results: Sequence[Json]) -> list[tuple[int, str, str]] | None:
    """For each call the number of its step, its name and its result; None unless all pair."""
    texts: dict[int, str] = {}
    for result in results:
        waiting = [call for call in calls if call["number"] not in texts]
        same = [call for call in waiting if result["id"] and call["id"] == result["id"]]
        next_to = [call for call in waiting if call["number"] == result["number"] - 1]
        if not same:
            same = [call for call in next_to if not (call["id"] and result["id"])]
        if len(same) != 1:
            return None
        texts[same[0]["number"]] = result["text"]
    if len(texts) != len(calls):
        return None
    return [(call["number"], call["name"], texts[call["number"]]) for call in calls]
