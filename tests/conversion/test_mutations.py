"""Exports with damage of every kind, beside good ones: those are imported as if they were alone.

Each format is imported by the real command; a damaged file is reported, or says what it says.
"""

import gzip
import json
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kp_batch import zstd
from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import load_rules
from kp_batch.imports.importing import import_traces
from tests.support.damage.chance import damaged, damaged_in_place, damaged_parquet, damaged_value
from tests.support.damage.changes import as_json
from tests.support.formats.atif import short
from tests.support.formats.inspect import log, sample, write_eval
from tests.support.formats.kits import AT, KITS, SECONDS
from tests.support.formats.knowledgepulse import registry
from tests.support.formats.otlp import TALK, agent, chat, request, text
from tests.support.formats.otlp_protobuf import encoded, stream
from tests.support.formats.rows import ROWS
from tests.support.imports.importing import imported, kp_trace, named, refusals
from tests.support.processes.commands import invoke

pytestmark = pytest.mark.slow

FILES = 60  # of each form
CHECKED = {".json.gz", ".pb.gz", ".eval"}  # they hold checksums of what they unpack to
RULES = {
    "success": {"always": True},
    "confidence": {"always": 0.5},
    "task_domain": {"otherwise": "default"},
}
RULE_OPTIONS = ["--success", "always", "--confidence", "0.5", "--domain", "=default"]


def otlp(path: Path, trace: str) -> None:
    spans = [agent(trace=trace), chat(1, TALK, [text("assistant", f"so {trace}")], trace=trace)]
    content = request(spans).encode()
    if ".pb" in path.suffixes:
        content = stream([encoded(json.loads(content))])
    if path.suffix == ".zst":
        content = zstd.compress(content)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def rows(name: str) -> Callable[[Path, str], None]:
    """Writes a trace of one row, as Parquet or as a line, which tells its name in a text, too."""

    def write_row(path: Path, trace: str) -> None:
        columns = ROWS[name].named(trace)
        columns[ROWS[name].text] = columns[ROWS[name].text].replace("done", f"done {trace}")
        if path.suffix == ".jsonl":
            path.write_text(json.dumps(columns) + "\n")
        else:
            pq.write_table(pa.Table.from_pylist([columns]), path, compression="none")

    return write_row


def atif(path: Path, trace: str) -> None:
    path.write_text(json.dumps(short(trajectory_id=trace, notes=trace)))


def mlflow(path: Path, trace: str) -> None:
    (rows,) = KITS["mlflow"].make(trace, str(SECONDS * 10**9), 1.0, f"do {trace}").values()
    path.write_text("\n".join(map(json.dumps, rows)))


def inspect_log(path: Path, trace: str) -> None:
    path.write_text(json.dumps(log(sample(trace))))


def inspect_eval(path: Path, trace: str) -> None:
    members = {"header.json": log(), "samples/7_epoch_2.json": sample(trace)}
    write_eval(path, members, packed=93 if trace < "8" else 8)


def knowledgepulse(path: Path, trace: str) -> None:
    path.write_text(json.dumps(kp_trace(trace)))


def knowledgepulse_registry(path: Path, trace: str) -> None:
    unit = (f"kp:trace:{trace}", json.dumps(kp_trace(trace)), "2026-09-09", None)
    with closing(registry(path, [unit])) as database:
        database.execute("PRAGMA journal_mode = DELETE")


def session(name: str) -> Callable[[Path, str], None]:
    """Writes a session of one turn, which tells its name in a text, too."""

    def write_session(path: Path, trace: str) -> None:
        (rows,) = KITS[name].make(trace, AT, 1.0, f"do {trace}").values()
        path.write_text("\n".join(map(json.dumps, rows)))

    return write_session


FORMS: Mapping[str, Mapping[str, Callable[[Path, str], None]]] = {
    "otlp": dict.fromkeys((".jsonl", ".json.gz", ".pb", ".pb.gz", ".pb.zst"), otlp),
    "phoenix": {".parquet": rows("phoenix")},
    "mlflow": {".json": mlflow},
    "langfuse": dict.fromkeys((".parquet", ".jsonl"), rows("langfuse in Parquet")),
    "langsmith": dict.fromkeys((".parquet", ".jsonl"), rows("langsmith in Parquet")),
    "atif": {".json": atif},
    "claude-code": {".jsonl": session("claude-code")},
    "codex": {".jsonl": session("codex")},
    "pi": {".jsonl": session("pi")},
    "inspect": {".json": inspect_log, ".eval": inspect_eval, ".parquet": rows("scout")},
    "messages": dict.fromkeys((".parquet", ".jsonl"), rows("messages in Parquet")),
    "knowledgepulse": {".json": knowledgepulse, ".sqlite": knowledgepulse_registry},
}


def test_every_format_is_damaged() -> None:
    assert FORMS.keys() == FORMATS.keys(), "add it to FORMS"


@pytest.mark.telling
@pytest.mark.parametrize("name", FORMS)
def test_damaged_exports(tmp_path: Path, name: str) -> None:
    whole, mixed = tmp_path / "whole", tmp_path / "mixed"
    whole.mkdir()
    mixed.mkdir()
    exact: dict[str, bool] = {}  # whether a trace that is accepted has to be as it was
    sound = set[str]()
    for ending, write_file in FORMS[name].items():
        for number in range(FILES):
            chance = Random(f"{name} {ending} {number}")
            trace = sha256(f"{ending} {number}".encode()).hexdigest()[:32]
            file = f"{trace}{ending}"
            write_file(whole / file, trace)
            kind = chance.choice(["whole", "cut", "damaged", "damaged"])
            if kind == "whole":
                sound.add(f"kp:trace:{trace}")
            exact[f"kp:trace:{trace}"] = kind in {"whole", "cut"} or ending in CHECKED
            (mixed / file).write_bytes(changed(whole / file, kind, chance))
    rules = KITS[name].dated(load_rules(None, RULES))
    import_traces(FORMATS[name], [str(whole)], tmp_path / "sound", rules)
    source = named(imported(tmp_path / "sound"))
    assert source.keys() == exact.keys()
    command = f"import {name} {mixed} --output {tmp_path / 'out'}".split()
    done = invoke(*command, *RULE_OPTIONS, "--created-at", rules.created_at)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert not re.search("Traceback|panicked|unexpected", output), output
    accepted = named(imported(tmp_path / "out"))
    assert refusals(tmp_path / "out")
    assert accepted.keys() >= sound
    files = [(path.name.encode(), path.read_bytes()) for path in mixed.iterdir()]
    contents = letters(b" ".join([*map(b" ".join, files), *(x.hex().encode() for _, x in files)]))
    for trace, row in accepted.items():
        if exact.get(trace):
            assert row == source[trace]
        elif (
            trace not in source and name != "messages"
        ):  # its id, too, is as the damaged file has it, or its name
            parts = trace.removeprefix("kp:trace:").split("/")
            assert all(letters(part.encode()) in contents for part in parts)


def letters(text: bytes) -> bytes:
    """The plain letters of a text: an id may be a list, for which the marks between differ."""
    return re.sub(rb"[^0-9A-Za-z]", b"", text)


def changed(path: Path, kind: str, chance: Random) -> bytes:
    """The content of a file, damaged in some way, or not."""
    content = path.read_bytes()
    if kind == "whole":
        return content
    if kind == "cut":
        return content[: chance.randrange(len(content))]
    if path.suffix == ".parquet":
        return damaged_parquet(content, chance)
    ways = (damaged, damaged_in_place, *([odd_line] if path.suffix in {".json", ".jsonl"} else []))
    return chance.choice(ways)(content, chance)


def odd_line(content: bytes, chance: Random) -> bytes:
    """A file of JSON, or lines of it, with an odd value somewhere."""
    lines = content.splitlines()
    at = chance.randrange(len(lines))
    lines[at] = as_json(damaged_value(json.loads(lines[at]), chance))
    return b"\n".join(lines)
