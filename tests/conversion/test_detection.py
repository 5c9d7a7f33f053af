"""How the format of files is found: by how they begin, where that shows it."""

import gzip
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kp_batch import bounds
from kp_batch.conversion import model
from kp_batch.conversion.formats import detect_format
from kp_batch.conversion.formats.json_files import beginning
from tests.support import GOLDEN
from tests.support.formats.kits import KITS

_DRAWN = Random(7)
_UGLY: dict[str, Any] = {
    "a": [1.5, True, None, {}, []],
    "b": {"c": 'x"]}\\', "d": [[], [{"é": "\n{"}]]},
    "": -1e-7,
}


class Source:
    """Files, and which of them were looked into, and which were fetched."""

    def __init__(self, *paths: Path) -> None:
        self.paths = sorted(map(str, paths))
        self.looks, self.fetched = list[str](), list[str]()

    def read(self, path: str) -> bytes:
        self.looks.append(path)
        with Path(path).open("rb") as file:
            return file.read(model.HEAD_BYTES)

    @contextmanager
    def local_path(self, path: str) -> Generator[Path]:
        self.fetched.append(path)
        yield Path(path)

    @property
    def format(self) -> str:
        return detect_format(self.paths, self.read, self.local_path).name


def traces(name: str) -> list[dict[str, Any]]:
    """The rows of traces of a kit: more than 100 kB, even once they are packed."""
    made = (KITS[name].make(f"{x:04x}", KITS[name].at, 1.0, _noise()) for x in range(40))
    return [row for files in made for rows in files.values() for row in rows]


def _noise() -> str:
    return _DRAWN.randbytes(3_000).hex()


def as_lines(rows: Sequence[object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.mark.parametrize("name", ["otlp", "langsmith", "mlflow", "messages", "pi"])
def test_lines_are_not_fetched(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(as_lines(traces(name)))
    source = Source(tmp_path / "a.jsonl")
    assert (source.format, source.fetched) == (name, [])


@pytest.mark.parametrize("ending", [".jsonl.gz", ".json.gz"])
def test_nor_are_packed_ones(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(as_lines(traces("otlp"))))
    assert path.stat().st_size > model.HEAD_BYTES
    source = Source(path)
    assert (source.format, source.fetched) == ("otlp", [])


@pytest.mark.parametrize("indent", [None, 2])
def test_nor_is_one_long_value(tmp_path: Path, indent: int | None) -> None:
    export = {"data": {"knowledge_units": traces("knowledgepulse")}}
    (tmp_path / "a.json").write_text(json.dumps(export, indent=indent))
    source = Source(tmp_path / "a.json")
    assert (source.format, source.fetched) == ("knowledgepulse", [])


def test_nor_is_one_that_is_too_large_to_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = {"data": {"knowledge_units": traces("knowledgepulse")}}
    (tmp_path / "a.json").write_text(json.dumps(export))
    monkeypatch.setattr(bounds, "LINE_BYTES", 100_000)
    assert Source(tmp_path / "a.json").format == "knowledgepulse"


@pytest.mark.parametrize("long", ["line", "header"])
def test_what_does_not_show_it_so_early_is_read_whole(tmp_path: Path, long: str) -> None:
    first, *others = traces("langsmith")
    if long == "line":
        # Up to the end of its inputs it might be an observation of Langfuse.
        order = ("id", "trace_id", "start_time", "inputs")
        first = {**{name: first[name] for name in order}, **first, "inputs": "x" * 100_000}
        path, name = tmp_path / "a.jsonl", "langsmith"
        path.write_bytes(as_lines([first, *others]))
    else:
        [log] = KITS["inspect"].make("aa", KITS["inspect"].at, 1.0).values()
        log[0]["eval"] = {"dataset": {"sample_ids": [*range(20_000)]}} | log[0]["eval"]
        path, name = tmp_path / "a.json", "inspect"
        path.write_text(json.dumps(log[0]))
    source = Source(path)
    assert (source.format, source.fetched) == (name, [str(path)])


def test_other_files_are_fetched_once(tmp_path: Path) -> None:
    kit = KITS["scout"]
    source = Source(*kit.write(tmp_path, [kit.make("aa", kit.at, 1.0)]))
    assert (source.format, source.fetched) == ("inspect", source.paths)


def test_few_of_many_files_are_looked_into(tmp_path: Path) -> None:
    kit = KITS["knowledgepulse"]
    made = [kit.make(f"{number:04x}", kit.at, 1.0) for number in range(300)]
    source = Source(*kit.write(tmp_path, made))
    assert source.format == "knowledgepulse"
    assert len(source.looks) < 150


def test_many_trials_are_of_one_format(tmp_path: Path) -> None:
    kit = KITS["atif"]
    made = [kit.make(f"{number:04x}", kit.at, 1.0) for number in range(150)]
    assert Source(*kit.write(tmp_path, made)).format == "atif"


@pytest.mark.parametrize("size", [2_000, 8_000])
@pytest.mark.parametrize("folder", sorted((GOLDEN / "imports").iterdir()), ids=lambda x: x.name)
def test_real_files_show_it_early(folder: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "HEAD_BYTES", size)
    assert Source(*(path for path in folder.rglob("*") if path.is_file())).format == folder.name


@pytest.mark.parametrize("indent", [None, 1])
def test_a_value_that_is_cut_anywhere_is_closed(indent: int | None) -> None:
    text = json.dumps(_UGLY, indent=indent, ensure_ascii=False).encode()
    cut = [json.loads(beginning("a.json", text[:size])) for size in range(1, len(text) + 1)]
    assert [x for place, x in enumerate(cut) if x not in cut[:place]][-1] == _UGLY
    assert {"a": [1.5, True, None]} in cut
    assert all(value.keys() <= _UGLY.keys() for value in cut)


@pytest.mark.parametrize("path", ["a.json", "a.jsonl"])
def test_complete_lines_are_kept_unchanged(path: str) -> None:
    lines = as_lines([_UGLY, _UGLY]) + b"{no JSON\n"
    assert beginning(path, lines + b'{"a": {') == lines


@pytest.mark.parametrize("content", [b"", b"PAR1{", b"\n{\x08\x01}", b"text", b"\xff\xfe{\0}\0"])
def test_what_is_no_json_has_no_beginning(content: bytes) -> None:
    assert beginning("a.json", content) == b""
