"""What an import keeps of a record as it was read, and of a file that is damaged."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kp_batch.bounds import parse
from kp_batch.conversion.model import SourceRecord
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import UnreadableError
from kp_batch.imports.importing import import_traces
from kp_batch.imports.reading import content_of
from tests.support.imports.importing import (
    RULES,
    import_spans,
    refusals,
    said,
    span,
    spans_format,
    write_lines,
)


def _nested(levels: int) -> Any:
    return [] if levels == 0 else [_nested(levels - 1)]


@pytest.mark.parametrize(
    "content",
    [
        {"é": "\u2028\x00\x7f", "b": [1e22, 5e-324, -0.0, 10**40, None, True]},
        [float("inf"), -float("inf")],
        {"half of a surrogate": "\ud800"},
        _nested(400),
    ],
    ids=["any", "infinite", "surrogate", "deep"],
)
def test_contents_are_kept_as_they_are(content: Any) -> None:
    assert repr(parse(content_of(SourceRecord("trace", content)))) == repr(content)


def test_what_is_nested_too_deep_is_kept_as_too_large() -> None:
    content: list[Any] = []
    for _ in range(100_000):
        content = [content]
    assert content_of(SourceRecord("trace", content)) == b"null"
    while content:  # level by level: freeing it at once would be as deep
        content = content[0]


def test_nothing_counts_of_a_file_that_turns_out_to_be_damaged(tmp_path: Path) -> None:
    source, archive = tmp_path / "source", tmp_path / "archive"
    write_lines(source / "1.jsonl", [span("a", 1)])
    write_lines(source / "2.jsonl", [span("a", 2), span("b", 3)])

    def damaged(path: Path, others: Any) -> Iterator[Any]:
        yield from spans_format().records(path, others)
        if path.name == "2.jsonl":
            raise UnreadableError("its end is missing")

    form = replace(spans_format(), records=damaged)
    done = import_traces(form, [str(source)], archive, load_rules(None, RULES))
    assert (done.traces, len(refusals(archive))) == (1, 1)
    assert said(archive) == {"a": ["1"]}
    write_lines(source / "2.jsonl", [span("a", 2), span("b", 4)])
    import_spans(source, archive)
    assert said(archive) == {"a": ["1", "2"], "b": ["4"]}
    assert refusals(archive) == []
