"""The runs of `agent_runs` as files of every format, to be changed; and what such files come to."""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from kp_batch.conversion.conversation.messages import parse_json
from tests.support import GOLDEN
from tests.support.formats.agent_dialects import Row
from tests.support.formats.agent_runs import OF_AGENTS, RUNS, SYSTEMS, TELLING, Step
from tests.support.formats.agent_talks import TALKERS, TALKS
from tests.support.imports.drafting import always, drafted

Files = dict[str, list[Any]]  # the rows of each file by its name; of a document, that alone
Outcome = list[Any]
BY_TURN, BY_SESSION = (
    always(recovery="after_tool_error", trace=each, created_at="2026-01-01")
    for each in ("turn", "session")
)
WRITERS = {**SYSTEMS, **TALKERS}
SESSIONS = ("claude-code", "codex", "pi")
REAL = (
    *("claude-code", "claude-code by session", "codex", "codex by session"),
    *("pi", "pi by session"),
)


def format_of(system: str) -> str:
    """The format that a system's files have."""
    return system.partition(" ")[0]


def runs_of(system: str) -> Mapping[str, Sequence[Step]]:
    """The runs that a system can tell, by their names."""
    if system in TALKERS:
        return {name: RUNS[name][0] for name in TALKS}
    told = RUNS | (OF_AGENTS if system in TELLING else {})
    return {name: run for name, (run, _) in told.items()}


def files_of(system: str, run: Sequence[Step]) -> Files:
    """What a system tells of a run."""
    with TemporaryDirectory() as folder:
        WRITERS[system](Path(folder) / "in", run)
        return _read(Path(folder) / "in")


@cache
def usual(system: str) -> Mapping[str, tuple[Files, Outcome]]:
    """The files of all its runs, and of real sessions, and what they come to; not to be changed."""
    files = {name: files_of(system, run) for name, run in runs_of(system).items()}
    if system in REAL:
        files["real sessions"] = _read(GOLDEN / "imports" / format_of(system))
    return {name: (each, outcome_of_files(system, each)) for name, each in files.items()}


def lists_in(system: str, files: Files) -> list[list[Any]]:
    """The lists of records in files; a document has one within."""
    lists = [*files.values()]
    if system in SYSTEMS or format_of(system) in SESSIONS:
        return lists
    if system == "atif":
        return [rows[0]["steps"] for rows in lists]
    if system == "inspect":
        return [rows[0]["samples"][0]["messages"] for rows in lists]
    if system == "messages":
        return [rows[0]["messages"] for rows in lists]
    if system == "knowledgepulse":
        return [rows[0]["data"]["knowledge_units"] for rows in lists]
    raise AssertionError(f"say here where {system} has its records")


def outcome_of_files(system: str, files: Files) -> Outcome:
    """The objective and the steps of each trace in some files, and what is refused."""
    with written(files) as folder:
        return _come_to(system, folder)


@contextmanager
def written(files: Files) -> Generator[Path]:
    """Write files into a folder, which is removed."""
    with TemporaryDirectory() as folder:
        for name, rows in files.items():
            _write(Path(folder) / name, rows)
        yield Path(folder)


def outcome_of_run(system: str, run: Sequence[Step]) -> Outcome:
    """The same for a run that a system records."""
    with TemporaryDirectory() as folder:
        WRITERS[system](Path(folder) / "in", run)
        return _come_to(system, Path(folder))


def _come_to(system: str, folder: Path) -> Outcome:
    rules = BY_SESSION if system.endswith("by session") else BY_TURN
    made = drafted(format_of(system), folder, rules)
    traces = sorted((x.objective, [_plain(step) for step in x.steps]) for x in made.drafts.values())
    return [*traces, made.reasons]


def _plain(step: Mapping[str, Any]) -> str:
    """A step as text; arguments may be written with spaces or without, and ids be missing."""
    return json.dumps({**step, "input": parse_json(step["input"]), "call_id": None})


def _read(folder: Path) -> Files:
    """The rows of a folder's files, but for those that are packed."""
    files: Files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            files[name] = pl.read_parquet(path).to_dicts()
        elif path.suffix == ".jsonl":
            files[name] = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
        elif path.suffix == ".json":
            files[name] = [json.loads(path.read_text("utf-8"))]
    return files


def _write(path: Path, rows: Sequence[Row | str]) -> None:
    """Write rows; a text is a line by itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    else:
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        path.write_text("\n".join(lines), "utf-8")
