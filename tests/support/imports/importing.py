"""Sources that tests import."""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, cast

import polars as pl
import pytest

from kp_batch.conversion.formats.json_files import read_json_lines
from kp_batch.conversion.formats.knowledgepulse import FORMAT
from kp_batch.conversion.model import Format, Refused, SourceRecord, TraceDraft, by_ending
from kp_batch.conversion.rules import Rules, load_rules
from kp_batch.imports import importing
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported
from kp_batch.text import time_of

T = TypeVar("T")


def kp_trace(name: str, day: int = 1, **changes: Any) -> dict[str, Any]:
    """A trace as a KnowledgePulse registry writes it."""
    return {
        "@type": "ReasoningTrace",
        "id": f"kp:trace:{name}",
        "metadata": {
            "created_at": f"2026-03-{day:02d}T10:00:00.000Z",
            "task_domain": "code",
            "success": True,
            "quality_score": 0.5,
            "visibility": "network",
        },
        "task": {"objective": f"do {name}"},
        "steps": [
            {"step_id": 0, "type": "thought", "content": "so"},
            {"step_id": 1, "type": "tool_call", "tool": {"name": "look"}, "input": {"at": 1}},
        ],
        "outcome": {"result_summary": "done", "confidence": 0.9},
        **changes,
    }


def write_json(path: Path, value: object) -> Path:
    """Write a file of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
    return path


def imported(archive: Path) -> dict[str, dict[str, Any]]:
    """The traces of an archive, by their ids; each is in the file of its day."""
    rows: dict[str, dict[str, Any]] = {}
    for path in sorted(archive.glob("*.parquet")):
        for row in pl.read_parquet(path, glob=False).to_dicts():
            assert row["metadata"]["created_at"].startswith(path.stem)
            assert row["id"] not in rows
            rows[row["id"]] = row
    return rows


def named(rows: Mapping[str, T]) -> dict[str, T]:
    """Traces by the ids that their sources have; rows of messages have a digest behind it."""
    return {id_.partition("/")[0]: row for id_, row in rows.items()}


def refusals(archive: Path, kind: str = "refused") -> list[dict[str, Any]]:
    """The lines of `_refused.jsonl`, or of `_waiting.jsonl`."""
    text = (archive / f"_{kind}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def import_all(source: Path, archive: Path) -> Imported:
    return import_traces(FORMAT, [str(source)], archive, load_rules(None, {}))


def units_of_lines(path: Path, _: Any) -> Any:
    """A record of each line, which names its trace."""
    for row in read_json_lines(path):
        if isinstance(row, Refused):
            yield row
        else:
            yield SourceRecord(cast("dict[str, str]", row[1])["trace"], row[1])


def spans_format() -> Format:
    """A made format: lines of spans, far apart, of which each says one thing."""

    def draft(trace: str, records_of_trace: Sequence[SourceRecord], _: Rules) -> TraceDraft:
        records = [cast("dict[str, str]", each.payload) for each in records_of_trace]
        records.sort(key=itemgetter("at"))
        steps = [{**STEP, "step_id": at, "content": x["say"]} for at, x in enumerate(records)]
        scores = {"right": 1.0} if trace != "unscored" else {}
        time, fields = time_of(records[0]["at"]), {"kind": ["made"]}
        return TraceDraft(f"kp:trace:{trace}", time, "go", steps, scores, fields)

    return Format("spans", "nothing", by_ending(".jsonl"), units_of_lines, draft)


def older_spans() -> Format:
    """The format of spans as an older version drafts it: it doubles what is said.

    Its records are the same. The traces are in other days, and one is refused.
    """
    form = spans_format()

    def draft(trace: str, records: Sequence[SourceRecord], rules: Rules) -> Any:
        if trace == "d":
            return Refused(["no_steps"], "there were none", id=f"kp:trace:{trace}")
        made = cast("TraceDraft", form.draft(trace, records, rules))
        steps = [{**step, "content": f"{step['content']}" * 2} for step in made.steps]
        return replace(
            made, steps=steps, created_at=cast("datetime", made.created_at) + timedelta(days=1)
        )

    return replace(form, draft=draft)


@contextmanager
def older_importer() -> Generator[None]:
    """Be an older version, which made what it is asked to make in its own way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "IMPORTER", importing.IMPORTER - 1)
        yield


STEP = {**dict.fromkeys(("tool", "input", "output_summary", "latency_ms")), "type": "thought"}


RULES: dict[str, Any] = {
    "success": {"score": "right", "at_least": 1},
    "confidence": {"always": 0.5},
    "task_domain": {"otherwise": "default"},
}


def write_lines(path: Path, values: list[dict[str, Any]]) -> None:
    from json import dumps

    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{dumps(value)}\n" for value in values), "utf-8")


def import_spans(folder: Path | str, archive: Path | str, **rules: Any) -> Imported:
    return import_traces(
        spans_format(), [str(folder)], archive, load_rules(None, {**RULES, **rules})
    )


def span(trace: str, second: int) -> dict[str, Any]:
    return {"trace": trace, "at": f"2026-03-01T00:00:{second:02d}Z", "say": f"{second}"}


def said(archive: Path) -> dict[str, list[str]]:
    rows = imported(archive).items()
    return {name[9:]: [each["content"] for each in row["steps"]] for name, row in rows}
