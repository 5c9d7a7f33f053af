"""Where damages stand: files of the archive, and of each format, in which one takes its place."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.damage import id_in
from tests.support.damage.parquet_files import Column, write_column
from tests.support.damage.table import ARCHIVE, Damage, damages_at
from tests.support.formats.kits import KITS
from tests.support.formats.rows import ROWS
from tests.support.make.archives import table, trace, write_jsonl


def write(damage: Damage, place: str, folder: Path) -> set[str]:
    """Write what is damaged into a new folder; returns the ids of the traces that stay."""
    folder.mkdir(parents=True)
    if damage.kind == "file":
        path = folder / damage.name
        damage.make(path)
        return {id_in(path, name) for name in damage.stay}
    stay = set() if damage.reasons else {id_in(folder, "damaged")}
    if damage.kind == "column":
        _write_column(damage.make(), place, folder / "a.parquet", id_in(folder, "damaged"))
    elif place == ARCHIVE:
        line = json.dumps(trace(id=id_in(folder, "damaged"), objective="HERE")).encode()
        write_jsonl(folder / "a.jsonl", [_in_place(line, damage.make()), trace(id=id_in(folder))])
        stay.add(id_in(folder))
    else:
        for path in _write_trace(place, folder, id_in(folder, "damaged"), "HERE"):
            path.write_bytes(_in_place(path.read_bytes(), damage.make()))
    return stay


def write_named(name: str, place: str, folder: Path) -> set[str]:
    """Likewise, of what has this name, and write what is good beside."""
    [damage] = [damage for damage in damages_at(place) if damage.name == name]
    return {write_good(place, folder / "good"), *write(damage, place, folder / "damaged")}


def write_good(place: str, folder: Path) -> str:
    """Write a good trace into a new folder; returns its id."""
    if place == ARCHIVE:
        write_jsonl(folder / "a.jsonl", [trace(id=id_in(folder))])
    else:
        _write_trace(place, folder, id_in(folder))
    return id_in(folder)


def _write_trace(place: str, folder: Path, *named: str) -> list[Path]:
    kit = KITS[place]
    return kit.write(folder, [kit.make(named[0], kit.at, 1.0, *named[1:])])


def _in_place(content: bytes, made: bytes) -> bytes:
    """Put JSON in the last place of a text, which may be in a text that is JSON."""
    within = json.dumps(made.decode())[1:-1].encode()
    for text, value in ((b'"HERE"', made), (rb"\"HERE\"", within)):
        before, found, after = content.rpartition(text)
        content = before + value + after if found else content
    return content


def _write_column(column: Column, place: str, path: Path, name: str) -> None:
    if place == ARCHIVE:
        row, text = table([trace(id=name)]), "task"
        if not column.is_more:
            task = pa.StructArray.from_arrays([column.values], ["objective"])
            column = column._replace(values=task)
    else:
        values: dict[str, Any] = ROWS[place].named(name)
        row = pa.table({key: pa.array([value], pa.string()) for key, value in values.items()})
        text = ROWS[place].text
    write_column(path, row, "extra" if column.is_more else text, column)
