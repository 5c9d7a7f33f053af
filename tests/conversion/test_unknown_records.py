"""A record of a kind that no reader knows: it alone is counted, and nothing else is lost."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from polars.exceptions import PolarsError

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import Format, Input
from kp_batch.imports.importing import import_traces
from kp_batch.imports.reading import items_of
from kp_batch.imports.source_files import local_path
from kp_batch.imports.store import STORE, RecordStore
from tests.conversion.unseen import UNKNOWN
from tests.support import GOLDEN
from tests.support.damage.changes import ODD, as_json, swapped
from tests.support.formats.agent_files import (
    WRITERS,
    Files,
    format_of,
    lists_in,
    usual,
    written,
)
from tests.support.imports.drafting import ALWAYS, Conversion, always, converted, drafted

ALL_RULES = always(created_at="2026-01-01")
# In Parquet the messages are those of the other files, in one text.
SYSTEMS = [each for each in WRITERS if each not in ("inspect in Parquet", "messages in Parquet")]
# By format, where a file has lines: how an unknown record of a trace of its own is counted in the
# files that we keep.
REAL: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    *(
        (form, record, {label: times})
        for form, times in (("claude-code", 13), ("codex", 14), ("pi", 3))
        for record, label in UNKNOWN[form]
    ),
    *(
        ("otlp", record, {label: 6, "unknown_dialect": 1})
        for record, label in UNKNOWN["otlp"]
        if "gen_ai.operation.name" in json.dumps(record)
    ),
    *(
        ("mlflow", record, {label: 1, "no span of an agent": 1})
        for record, label in UNKNOWN["mlflow"]
    ),
]


def counts(conversion: Conversion) -> Counter[str]:
    """What is skipped, by its kind, and what is refused, by its reasons."""
    reasons = [reason for each in conversion.reasons for reason in each]
    return Counter([*conversion.skipped, *reasons])


@pytest.mark.parametrize(("form", "record", "counted_as"), REAL)
def test_in_real_files_it_costs_nothing_else(
    tmp_path: Path, form: str, record: dict[str, Any], counted_as: dict[str, int]
) -> None:
    source = tmp_path / form
    shutil.copytree(GOLDEN / "imports" / form, source)
    before = drafted(form, source)
    assert before.drafts

    for path in source.rglob("*.jsonl"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(record) + "\n")

    after = drafted(form, source)
    assert after.drafts == before.drafts
    assert counts(after) - counts(before) == counted_as
    assert not counts(before) - counts(after)


def made(system: str, files: Files) -> Conversion:
    with written(files) as folder:
        return drafted(format_of(system), folder, ALL_RULES)


def drafts(conversion: Conversion) -> list[str]:
    """Drafts without their ids: that of a row of messages is their digest."""
    return sorted(repr(replace(each, id="")) for each in conversion.drafts.values())


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("system", SYSTEMS)
def test_in_any_format_it_alone_is_counted(system: str, *, is_first: bool) -> None:
    form = format_of(system)
    for files, _ in [*usual(system).values()][:2]:
        before = made(system, files)
        for record, counted_as in UNKNOWN[form]:
            changed = deepcopy(files)
            for records in (lists := lists_in(system, changed)):
                # The first line of a session is its header.
                records.insert((form in ("pi", "codex")) if is_first else len(records), record)
            after = made(system, changed)
            assert drafts(after) == drafts(before)
            assert counts(after) - counts(before) == {counted_as: len(lists)}
            assert not counts(before) - counts(after)


def test_an_import_reports_it_and_keeps_its_record(tmp_path: Path) -> None:
    record, counted_as = UNKNOWN["langfuse"][0]
    files, _ = next(iter(usual("langfuse").values()))
    changed = {name: [*rows, record] for name, rows in files.items()}
    archive = tmp_path / "archive"
    with written(changed) as folder:
        done = import_traces(FORMATS["langfuse"], [str(folder)], archive, ALWAYS)
    assert (done.traces, done.refused) == (1, {})
    assert done.skipped == {counted_as: len(files)}
    with RecordStore(archive / STORE) as store:
        units = store.units(store.values("SELECT name FROM units")).values()
        contents = [json.loads(each.content or b"") for each in store.records(units)]
    assert record["type"] in {each["type"] for each in contents}


ROUNDS = 40
UNWRITTEN = (PolarsError, TypeError, ValueError)  # a column of Parquet has one type
DEEP, CUT = "[" * 2_000 + "]" * 2_000, '[{"role": "us'  # texts of JSON
UGLY = (*ODD, DEEP, CUT, "[1]", '{"a": [[]]}')


def damaged(system: str, files: Files, chance: Random) -> Files:
    """With a record that nobody knows in each list, and an ugly value in some row or record."""
    changed, in_parquet = deepcopy(files), system == "phoenix"
    lists = lists_in(system, changed)
    for records in lists:
        records.append(chance.choice(UNKNOWN[format_of(system)])[0])
    ugly = chance.choice([each for each in UGLY if isinstance(each, str) or not in_parquet])
    rows = chance.choice([*lists, *changed.values()])
    at = chance.randrange(len(rows))
    rows[at] = swapped(rows[at], lambda _: ugly, chance)
    if in_parquet:
        return changed
    return {name: [as_json(row).decode() for row in rows] for name, rows in changed.items()}


def readable(form: Format, folder: Path) -> Iterator[Input]:
    """The files that its reader can read."""
    paths = sorted(str(path) for path in folder.rglob("*") if path.is_file())
    for file in form.inputs(paths, lambda path: form.probe(path, Path(path).read_bytes())):
        with suppress(Exception):
            for _ in form.read(file, local_path):
                pass
            yield file


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_record_that_is_read_stops_the_count(system: str) -> None:
    """It would cost its whole file."""
    form, chance, read = FORMATS[format_of(system)], Random(system), 0
    files, _ = next(iter(usual(system).values()))
    for _ in range(ROUNDS):
        with suppress(*UNWRITTEN), written(damaged(system, files, chance)) as folder:
            read += sum(len([*items_of(form, file)]) for file in [*readable(form, folder)])
    assert read > ROUNDS / 2


@pytest.mark.parametrize(("text", "reason"), [(DEEP, "too_large"), (CUT, "cut_content")])
def test_a_text_that_cannot_be_parsed_costs_its_trace_and_no_other(text: str, reason: str) -> None:
    files, _ = next(iter(usual("messages").values()))
    [rows] = files.values()
    both = {"a.jsonl": [{**rows[0], "id": "other", "messages": text}, *rows]}
    with written(files) as folder, written(both) as other:
        before, after = (converted("messages", each, ALL_RULES) for each in (folder, other))
    assert before.rows
    assert after.rows == before.rows
    assert counts(after) == counts(before) + Counter([reason])
