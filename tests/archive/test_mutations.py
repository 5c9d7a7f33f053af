"""Files with damage of every kind: what is taken is what they say, or why not is reported.

Each is read again here, by plain libraries and strict rules, and compared with what was accepted.
"""

import json
import os
import re
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.reader import connect
from tests.support.damage.chance import damaged, damaged_parquet, damaged_value
from tests.support.damage.changes import as_json
from tests.support.make.archives import step, table, trace, write_jsonl, write_parquet
from tests.support.make.runs import facts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
MOST_MB = 1_000
SEEDS = range(int(os.environ.get("KP_MUTATION_SEEDS", "3")))  # each has other files
FILES = 100  # of each seed and form

Row = Mapping[str, Any]


@pytest.fixture(autouse=True)
def bounded(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Fails where memory grows, or anything is printed that no user should read."""
    before = _peak_mb()
    yield
    assert _peak_mb() - before < MOST_MB
    output = "".join(capfd.readouterr())
    assert not re.search("Traceback|panicked|unexpected", output), output


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def traces_of(name: str, chance: Random) -> list[dict[str, Any]]:
    """Good traces whose ids are a file's own."""
    usual = [
        step("thought", "so ä", step_id=0),
        step("tool_call", "run", "python", input='{"at": 1}', latency_ms=1.5),
        step("error_recovery", None),
    ]
    return [
        trace(
            id=f"kp:trace:{name}-{number}",
            steps=usual[: chance.choice((1, 2, 3))],
            objective=f"do {name} {number}",
            quality_score=chance.choice((0.5, 1, None)),
            created_at=f"2026-01-0{number + 1}T08:00:00.25Z",
        )
        for number in range(4)
    ]


@pytest.mark.telling
def test_damaged_lines(tmp_path: Path) -> None:
    archive, lines_by_name = tmp_path / "archive", dict[str, list[bytes]]()
    archive.mkdir()
    for seed in SEEDS:
        for number in range(FILES):
            chance = Random(f"{seed} {number}")
            name = f"{seed}-{number}.jsonl"
            traces = traces_of(name, chance)
            lines = [json.dumps(record).encode() for record in traces]
            lines_by_name[name] = lines
            if chance.random() < 0.5:
                (archive / name).write_bytes(damaged(b"\n".join(lines) + b"\n", chance))
            else:
                at = chance.randrange(4)
                changed = [
                    *lines[:at],
                    as_json(damaged_value(traces[at], chance)),
                    *lines[at + 1 :],
                ]
                write_jsonl(archive / name, changed)
    taken = Taken(archive, tmp_path / "warehouse")
    for name, lines in lines_by_name.items():
        if name in taken.unreadable:
            assert not json.detect_encoding((archive / name).read_bytes()).startswith("utf-8")
            continue
        with (archive / name).open("rb") as file:
            rows = {row: line for row, line in enumerate(file) if line.strip()}
        torn = [row for row, line in rows.items() if not line.endswith(b"\n") and _is_no_json(line)]
        assert (name in taken.cut) == bool(torn)
        rows = {row: line for row, line in rows.items() if row not in torn}
        accepted = taken.check(name, {row: _object(line) for row, line in rows.items()})
        assert {row for row, line in rows.items() if line.rstrip(b"\n") in lines} <= accepted, name


def _is_no_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return True
    except RecursionError:  # it is too large
        return False
    return False


def _object(line: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(line)
    return None


WRITTEN: Sequence[Mapping[str, Any]] = (
    {},
    {"compression": "none", "use_dictionary": False},
    {"compression": "zstd", "row_group_size": 2},
    {"compression": "gzip", "data_page_version": "2.0"},
    {"compression": "none", "write_page_checksum": True, "version": "1.0"},
)


def test_damaged_parquet(tmp_path: Path) -> None:
    archive, names = tmp_path / "archive", list[str]()
    archive.mkdir()
    for seed in SEEDS:
        for number in range(FILES):
            chance = Random(f"{seed} {number}")
            name = f"{seed}-{number}.parquet"
            content = _parquet(name, chance)
            (archive / name).write_bytes(damaged_parquet(content, chance))
            names.append(name)
    taken = Taken(archive, tmp_path / "warehouse")
    for name in sorted({*names} - taken.unreadable):
        taken.check(name, dict(enumerate(_read_parquet(archive / name))))


def _parquet(name: str, chance: Random) -> bytes:
    """Good traces, or ones of which something has another type throughout."""
    traces, form = traces_of(name, chance), chance.choice(WRITTEN)
    changed: list[Any] = []
    if chance.random() < 0.5:
        state = chance.getstate()
        for record in traces:
            chance.setstate(state)
            changed.append(damaged_value({**record, "steps": record["steps"][:1]}, chance))
    with suppress(pa.ArrowException, OverflowError, UnicodeError, ValueError, AttributeError):
        if changed:
            return _written(pa.Table.from_pylist(changed), form)
    return _written(table(traces), form)


def _written(rows: pa.Table, form: Mapping[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **form)
    return sink.getvalue().to_pybytes()


# The leaves that a run reads.
_READ = re.compile(
    r"@type|id|metadata\.(created_at|task_domain|agent_id|framework|success|quality_score)\b.*"
    r"|task\.objective\b.*|outcome\.confidence\b.*|steps\.\w+\.\w+\.(type|content|tool\.name)\b.*"
)


def _read_parquet(path: Path) -> list[Any]:
    # What Arrow's own types were is no part of what a file says.
    content = path.read_bytes().replace(b"ARROW:schema", b"arrow:schema")
    file = pq.ParquetFile(pa.BufferReader(content))
    columns = [file.schema.column(index) for index in range(len(file.schema))]
    leaves = [column.path for column in columns if str(column.logical_type) != "Null"]
    read = file.read(columns=[leave for leave in leaves if _READ.fullmatch(leave)])
    read.validate(full=True)
    return read.to_pylist()


class Taken:
    """What a run took from an archive, a good file beside all others."""

    def __init__(self, archive: Path, warehouse: Path) -> None:
        good = [trace(id=f"good {number}", objective=f"good {number}") for number in range(5)]
        write_jsonl(archive / "good.jsonl", good[:3])
        write_parquet(archive / "good.parquet", good[3:])
        settings = RescoreConfig(
            archive=(str(archive),), warehouse=warehouse, embedder="hashing", max_reject_share=1.0
        )
        rescore_archive(settings)
        with connect(warehouse) as connection:

            def ask(query: str) -> pl.DataFrame:
                return pl.DataFrame(connection.sql(query).to_arrow_table())

            files = ask("FROM files")
            self.scored = {row["trace_id"] for row in ask("FROM scores").to_dicts()}
            rejects = ask("FROM rejects").to_dicts()
        assert {f"good {number}" for number in range(5)} <= self.scored
        for reject in rejects:
            json.loads(reject["raw"] or "null", parse_constant=pytest.fail)
        gone = files.filter(status="unreadable")["source_file"]
        self.unreadable = {Path(path).name for path in gone}
        whole = [reject for reject in rejects if reject["row"] is None]
        cut = [reject for reject in whole if reject["reasons"] == ["cut_file"]]
        self.cut = {Path(reject["source_file"]).name for reject in cut}
        names = {Path(reject["source_file"]).name for reject in whole}
        assert names - self.cut == self.unreadable
        named = files.select("file_id", name=pl.col("source_file").str.split("/").list.last())
        rows = facts(settings).join(named, on="file_id").to_dicts()
        self.rows: dict[str, dict[int, Row]] = {}
        for row in rows:
            self.rows.setdefault(row["name"], {})[row["row"]] = row
        self.rejected = {(Path(reject["source_file"]).name, reject["row"]) for reject in rejects}

    def check(self, name: str, records: Mapping[int, Any]) -> set[int]:
        """Compare a file's rows with what it says; returns those that are accepted."""
        assert name not in self.unreadable
        rows = self.rows.get(name, {})
        assert rows.keys() == records.keys(), name
        accepted: set[int] = set()
        for number, row in rows.items():
            if row["reasons"]:
                assert (name, number) in self.rejected
                continue
            accepted.add(number)
            expected = strictly(records[number])
            assert {column: row[column] for column in expected} == expected, (name, number)
            assert row["trace_id"] in self.scored
        return accepted


def strictly(record: Any) -> dict[str, Any]:
    """What is scored of a trace, which has to be valid, in columns of the facts."""
    assert record.get("@type") in {None, "ReasoningTrace", b"ReasoningTrace"}
    metadata, steps = record["metadata"], record["steps"]
    confidence, success = record["outcome"]["confidence"], metadata["success"]
    assert _is_number(confidence)
    assert 0 <= confidence <= 1
    assert success is True or success is False
    types = [step["type"] for step in steps]
    assert types
    assert {*types} <= {"thought", "tool_call", "observation", "error_recovery"}
    tools = [_text((step.get("tool") or {}).get("name")) for step in steps if _has_tool(step)]
    tools = [tool for tool in tools if tool is not None]
    objective = _text(record["task"]["objective"]) or ""
    text = " ".join([objective, *(map(_content, steps))])
    recorded = metadata.get("quality_score")
    complexity = len({*types}) / 4 * 0.5 + 0.3 * ("error_recovery" in types) + len(types) / 20 * 0.2
    return {
        "trace_id": _text(record["id"]),
        "created_at": _time(metadata["created_at"]),
        "task_domain": _text(metadata["task_domain"]),
        "agent_id": _text(metadata.get("agent_id")),
        "framework": _text(metadata.get("framework")),
        "success": success,
        "recorded_score": _recorded(recorded),
        "confidence": float(confidence),
        "outcome_confidence": float(confidence) * (1.0 if success else 0.3),
        "complexity": min(1.0, complexity),
        "n_steps": len(steps),
        "n_tools": len({*tools}),
        "text_hash": sha256(text.encode()).hexdigest(),
        "objective_hash": sha256(objective.encode()).hexdigest()[:32],
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _recorded(value: Any) -> float | None:
    if not _is_number(value):
        return None
    with suppress(OverflowError):
        return float(value) if abs(float(value)) < float("inf") else None
    return None


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else None


def _has_tool(step: Row) -> bool:
    return isinstance(step.get("tool"), dict)


def _content(step: Row) -> str:
    value = step.get("content")
    if value is None or isinstance(value, str | bytes):
        return _text(value) or ""
    return _text(json.dumps(value, ensure_ascii=False)) or ""


def _time(value: Any) -> datetime:
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        value = datetime.fromisoformat(value.upper())
    if not isinstance(value, datetime):
        assert isinstance(value, date)
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
