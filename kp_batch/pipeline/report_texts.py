"""Reads the texts that the page shows again from the archive."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby, islice

import polars as pl

from kp_batch.archive.formats.json import rows_from_objects
from kp_batch.errors import Unread
from kp_batch.ingest.reread import Trace, TraceLocation, reread_batches
from kp_batch.report.traces import StepStart, Text
from kp_batch.steps.step import Executor, cut, step
from kp_batch.storage.urls import is_url
from kp_batch.text import one_line, shortened

# A page is worth a few seconds: of a disk, or of a network that fetches the files of a bucket.
_MOST_BYTES = 256 << 20
_PART_BYTES = 4 << 20  # to be read at once
# To open a file takes as long as to read so much of one.
_OPENING_BYTES = 512 << 10
_FETCHING_BYTES = 4 << 20
_OBJECTIVE = 300  # characters
_START = 120  # of a step
_NAME = 60  # of a tool
_TOOLS = 10
_STEPS = 3

Read = Text | Unread


def read_texts(rows: pl.DataFrame, executor: Executor) -> Mapping[str, Read]:
    """Read texts again, as far as their files have no more than `_MOST_BYTES` together.

    Files of the traces that the page shows first are preferred, then small ones.

    Args:
        rows: the columns of `TraceLocation` in the order of the files, in each by row; is_first:
            whether a trace is among those; and the size of its file in bytes.
        executor: reads the files.

    Returns:
        For each trace_id the text, or why it is not read.
    """
    costs = _affordable(rows)
    places = [TraceLocation(*row) for row in rows.select(TraceLocation._fields).iter_rows()]
    found: dict[str, Read] = {
        each.trace_id: "unreadable" if each.source_file in costs else "large" for each in places
    }
    by_file = (tuple(each) for _, each in groupby(places, lambda place: place.source_file))
    read = (each for each in by_file if each[0].source_file in costs)
    parts = list(cut(read, lambda places: costs[places[0].source_file], _PART_BYTES))
    for part, texts in zip(parts, executor.map(read_part, parts), strict=False):
        found |= texts
        if is_url(part[0][0].source_file) and "unreadable" in texts.values():
            break  # where a store is away, each object takes a while to say so
    return found


def _affordable(rows: pl.DataFrame) -> dict[str, int]:
    """The files that are read, with what each costs, in bytes."""
    files = rows.group_by("source_file").agg(pl.col("is_first").any(), pl.col("size").first())
    in_order = files.sort(~pl.col("is_first"), "size", "source_file")
    chosen: dict[str, int] = {}
    left = _MOST_BYTES
    for path, size in in_order.select("source_file", "size").iter_rows():
        cost = size + (_FETCHING_BYTES if is_url(path) else _OPENING_BYTES)
        if cost <= left:
            chosen[path] = cost
            left -= cost
    return chosen


@step("texts")
def read_part(files: Iterable[Iterable[TraceLocation]]) -> dict[str, Read]:
    """Read the texts of some files, by trace_id."""
    found: dict[str, Read] = {}
    for batch in reread_batches(chain.from_iterable(files)):
        found |= {place.trace_id: read for place, read in batch if isinstance(read, str)}
        found |= _texts(read for _, read in batch if not isinstance(read, str))
    return found


def _texts(traces: Iterable[Trace]) -> Iterator[tuple[str, Text]]:
    # As they were when they were scored: without null steps, and no text where there was none.
    rows = rows_from_objects("", enumerate(traces))
    columns = ("trace_id", "objective", "step_types", "step_contents", "step_tools")
    for trace_id, objective, types, contents, tools in rows.select(columns).iter_rows():
        steps = zip(types, tools, contents, strict=True)
        carried = dict.fromkeys(_tool(each) for each in tools if each is not None)
        text = Text(
            objective=_start(objective, _OBJECTIVE),
            types=Counter(types),
            tools=tuple(carried)[:_TOOLS],
            steps=tuple(
                StepStart(type_, _tool(tool), _start(content, _START))
                for type_, tool, content in islice(steps, _STEPS)
            ),
        )
        yield trace_id, text


def _tool(name: str | None) -> str:
    """A tool's name, empty where there is no tool."""
    return "" if name is None else _start(name, _NAME) or '""'


def _start(text: str | None, length: int) -> str:
    return shortened(one_line(text or ""), length)
