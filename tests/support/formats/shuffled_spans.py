"""OTLP spans of agents' traces in any order over several files, as a collector leaves them."""

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SPANS = 10  # of a trace
_BEGIN = 1_767_225_600_000_000_000  # 2026-01-01
_MINUTE = 60_000_000_000
RULES = ("--success", "always", "--confidence", "0.8", "--domain", "=code")


def write_spans(folder: Path, *, traces: int, files: int, seed: int = 0) -> None:
    """Write `SPANS` spans a trace, one a line, as many to each file; a trace a minute.

    Args:
        folder: of the files; made if it is missing.
        traces: how many.
        files: how many.
        seed: of their order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    order = list(range(traces * SPANS))
    random.Random(seed).shuffle(order)
    for number in range(files):
        with (folder / f"{number}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(span_lines(order[number::files]))


def span_lines(places: Iterable[int], minutes: int = 1) -> Iterator[str]:
    """The lines of spans by their places among those of all traces, which are so far apart."""
    for place in places:
        yield _line(*divmod(place, SPANS), minutes * _MINUTE)


def _line(trace: int, place: int, apart: int) -> str:
    """One span: the first is the agent's, after which models and tools take turns."""
    name = ("invoke_agent", "chat", "execute_tool")[place and 1 + (place - 1) % 2]
    start = _BEGIN + trace * apart + place * 1_000_000_000
    end = start + (50 if place == 0 else 1) * 900_000_000
    span = {
        "traceId": f"{trace + 1:032x}",
        "spanId": f"{trace * SPANS + place + 1:016x}",
        "parentSpanId": "" if place == 0 else f"{trace * SPANS + 1:016x}",
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": [_attribute(*each) for each in _attributes_of(trace, place, name).items()],
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n"


def _attributes_of(trace: int, place: int, name: str) -> dict[str, str]:
    common = {"gen_ai.operation.name": name}
    if name == "execute_tool":
        call = {"gen_ai.tool.call.id": f"c{place}", "gen_ai.tool.name": f"tool{place % 3}"}
        return common | call | {"gen_ai.tool.call.result": f"row {place} of {trace}"}
    message = {"role": "user", "parts": [{"type": "text", "content": f"Sum the rows of {trace}"}]}
    if place == 0:
        return common | {"gen_ai.input.messages": json.dumps([message])}
    part = {"type": "text", "content": f"I look at row {place} of {trace}"}
    answer = {"role": "assistant", "parts": [part], "finish_reason": "stop"}
    return common | {
        "gen_ai.input.messages": json.dumps([message]),
        "gen_ai.output.messages": json.dumps([answer]),
    }


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}
