"""Examples of every format with several traces, and damage of one place in one of their files."""

import json
import shutil
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from kp_batch.bounds import breaks_off, loads
from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import SourceRecord
from tests.support import GOLDEN
from tests.support.formats.agent_runs import OF_AGENTS, RUNS, SYSTEMS, TELLING, TRACE
from tests.support.formats.kits import KITS
from tests.support.imports.drafting import ALWAYS, items_of_file

_OTHERS = ("1af7651916cd43dd8448eb211c80319c", "2af7651916cd43dd8448eb211c80319c")
_RUN = "a model within the tool that a model's span holds"
_ASKED = "an agent without spans of its model"
WAYS = ("byte", "drop", "cut", "attribute")


def examples(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Each with its name, its format and a folder of its files, which are made in this one."""
    for system, write in SYSTEMS.items():
        if system != "phoenix":  # whose files are Parquet
            for name in (_RUN, _ASKED) if system in TELLING else (_RUN,):
                path = folder / system / name
                write(path, {**RUNS, **OF_AGENTS}[name][0])
                _with_neighbours(path)
                yield f"{system}: {name}", system.partition(" ")[0], path
    for name, kit in KITS.items():
        if not kit.is_parquet:
            path = folder / name
            kit.write(path, [kit.make(each, kit.at, 1.0) for each in ("aa", "bb", "cc")])
            yield name, kit.name, path
    for path in sorted((GOLDEN / "imports").iterdir()):
        yield f"{path.name}, as it stands", path.name, path


def _with_neighbours(folder: Path) -> None:
    """Add the same run as two more traces, with all lines in some order."""
    for path in folder.iterdir():
        text = path.read_text("utf-8")
        texts = (text, *(text.replace(TRACE, other) for other in _OTHERS))
        lines = "".join(texts).splitlines(keepends=True)
        Random(path.name).shuffle(lines)
        path.write_text("".join(lines), "utf-8")


@dataclass(frozen=True)
class Damage:
    """What was done to a file.

    Attributes:
        way: one of `WAYS`.
        path: of the file, within the folder of the example.
        lines: the numbers of the lines that it has touched, from 1 on.
        breaks: whether one of these is not JSON any more.
        cut: the beginning of a JSON text, if one was cut.
    """

    way: str
    path: str
    lines: range
    breaks: bool
    cut: str = ""


def damage_one(example: Path, folder: Path, chance: Random) -> Damage:
    """Copy an example into a new folder, with one place of one of its files damaged."""
    shutil.copytree(example, folder)
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    content, way, cut = path.read_bytes(), chance.choice(WAYS), ""
    if way == "drop" and path.suffix not in (".jsonl", ".pb"):
        way = "byte"  # as nothing loses a line of a document
    lines = _pieces(path, content)
    at = chance.randrange(len(content))
    first = last = bisect_right([*accumulate(map(len, lines))], at)
    if way == "byte":
        byte = bytes([chance.choice(b'\0\xff{}[]",:x0\n')])
        is_shifted = path.suffix == ".pb"  # as a length may be
        last = len(lines) if is_shifted else last + (content[at : at + 1] == b"\n")
        path.write_bytes(content[:at] + byte + content[at + 1 :])
    elif way == "cut":
        path.write_bytes(content[:at])
        last = len(lines)
    elif way == "drop":
        path.write_bytes(b"".join([*lines[:first], *lines[first + 1 :]]))
    else:
        cut = _cut_value(path, lines, first, chance)
    now = [] if way == "drop" else path.read_bytes().splitlines()[first : last + 1]
    breaks = path.suffix == ".jsonl" and not all(map(_is_object, now))
    touched = range(first + 1, last + 2)
    return Damage(way, str(path.relative_to(folder)), touched, breaks, cut)


def _pieces(path: Path, content: bytes) -> list[bytes]:
    """The lines of a file, or the messages of a stream, each with its length."""
    if path.suffix != ".pb":
        return content.splitlines(keepends=True)
    pieces = list[bytes]()
    while content:
        size = 4 + int.from_bytes(content[:4], "big")
        pieces.append(content[:size])
        content = content[size:]
    return pieces


def _is_object(line: bytes) -> bool:
    try:
        return not line.strip() or isinstance(loads(line), dict)
    except ValueError:
        return False


def _cut_value(path: Path, lines: list[bytes], number: int, chance: Random) -> str:
    """Cut one text in a line of JSON; returns it, if it was JSON itself and breaks off."""
    if path.suffix != ".jsonl" or not lines[number].strip():
        return ""
    value = loads(lines[number])
    places = [*_texts(value)]
    holder, key = chance.choice(places)
    text = holder[key]
    holder[key] = text[: chance.randrange(len(text))]
    lines[number] = json.dumps(value).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    return holder[key] if holder[key][:1] in ("{", "[") and breaks_off(holder[key]) else ""


def _texts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where each text of a JSON value is: what holds it, and its place there."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        if isinstance(inner, dict | list):
            yield from _texts(inner)
        elif isinstance(inner, str) and inner:
            yield value, key


def is_read(form: str, example: Path, damage: Damage) -> bool:
    """Whether the whole file has a part of any trace, and is not passed over."""
    return any(path == damage.path for path, _, _ in _records(form, example))


def touched(form: str, example: Path, damage: Damage) -> set[str]:
    """The traces that a damage may change.

    In a session a line says what those after it belong to.
    """
    records = [*_records(form, example)]
    of_file = {trace for path, trace, _ in records if path == damage.path}
    lines = {(trace, line) for path, trace, line in records if path == damage.path}
    if form in ("claude-code", "codex", "pi") or any(line is None for _, line in lines):
        return of_file or {trace for _, trace, _ in records}
    if not lines:  # a part of what another file tells
        return {trace for _, trace, _ in records}
    return {trace for trace, line in lines if line in damage.lines}


def _records(form: str, example: Path) -> Iterator[tuple[str, str, int | None]]:
    kind = FORMATS[form]
    paths = sorted(str(path) for path in example.rglob("*") if path.is_file())
    for file in kind.inputs(paths, lambda path: kind.probe(path, Path(path).read_bytes())):
        for item in items_of_file(kind, file, ALWAYS):
            if isinstance(item, SourceRecord):
                yield str(Path(file.path).relative_to(example)), item.trace, item.line


def texts_of_trace(row: Mapping[str, Any]) -> set[str]:
    """What is said in a trace: its question, thoughts, results and the names of tools."""
    steps = (step["content"] or (step["tool"] or {}).get("name") for step in row["steps"])
    return {row["task"]["objective"], *filter(None, steps)}
