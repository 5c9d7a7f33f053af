"""Joins the records that an import has read with those of earlier imports, by trace."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import polars as pl

from kp_batch import bounds
from kp_batch.imports.records import (
    CONTENT,
    FORGOTTEN,
    LENGTH,
    ORDER,
    RECORDS,
    SIZE,
    UNLIKE,
    NewRecords,
    is_in,
    with_digests,
)
from kp_batch.imports.rereading import Replaced
from kp_batch.imports.sorted_runs import RowGroupWriter, merged, pieces, stacked
from kp_batch.imports.waiting import Waiting

_OUTCOMES = pl.Schema({"trace": pl.String, "day": pl.String, "is_skipped": pl.Boolean})
_TRACES = 4_000  # whose rows in other segments are read at once
_NEW, _REWRITTEN, _UNCHANGED, _SKIPPED = "new", "rewritten", "unchanged", "skipped"


@dataclass(frozen=True)
class TraceRecords:
    """All records of one trace.

    Attributes:
        trace: its native id.
        contents: JSON, each content once, in the order in which it was first read; none, if all of
            them are void by now, or they come to more than a trace may have.
        lines: of the first record of each content, where its file has lines.
        file: of the first record.
        days: in which the trace may be.
        is_new: whether any of them is read by this import.
        is_settled: whether no more is waited for: the trace has a day, or nothing came for long.
        is_too_large: whether they come to more than a trace may have.
    """

    trace: str
    contents: Sequence[str]
    lines: Sequence[int | None]
    file: str
    days: Sequence[str]
    is_new: bool = True
    is_settled: bool = False
    is_too_large: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a trace: the day in which it is put, if any; or else why it has none."""

    day: str | None = None
    is_skipped: bool = False  # as it is no agent's
    waits: bool = False  # for more records


# Begins to build traces; the function that it returns waits for the outcome of each.
Build = Callable[[Sequence[TraceRecords]], Callable[[], Iterable[Outcome]]]


@dataclass(frozen=True)
class Segments:
    """The segments of earlier imports: files of `RECORDS`.

    Attributes:
        rewritten: all their rows go into the new segment.
        unchanged: they stay as they are.
        skipped: likewise, of traces that are no agent's.
        skipped_rewritten: likewise; all their rows go into the new one.
        since: of files whose content was replaced, the number of the import that did so.
        replaced: what this import has read again; where it is anything, no segment stays unchanged.
        is_registry: whether of each trace only the last record of a file counts.
        forgotten: rows of `FORGOTTEN`: what is kept out for good.
        closed: traces of which an older importer has read what is forgotten: nobody knows what this
            one makes of that, so that they take no records of files that they have none of.
        gone: files, or folders of files, that are forgotten.
    """

    rewritten: Sequence[Path] = ()
    unchanged: Sequence[Path] = ()
    skipped: Sequence[Path] = ()
    skipped_rewritten: Sequence[Path] = ()
    since: Mapping[str, int] = field(default_factory=dict[str, int])
    replaced: Replaced = field(default_factory=Replaced)
    is_registry: bool = False
    forgotten: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FORGOTTEN))
    closed: pl.Series = field(default_factory=lambda: pl.Series(dtype=pl.String))
    gone: Sequence[str] = ()


class Join:
    """Joins new records with those of earlier imports.

    Args:
        new: the records that an import has read.
        old: the segments of earlier imports.
        waiting: the traces that wait; takes what becomes of each trace.
        folder: for the two new segments: `kept` and `skipped`.
        all_anew: whether all traces are built, and not only those with new contents.
    """

    def __init__(
        self,
        new: NewRecords,
        old: Segments,
        waiting: Waiting,
        folder: Path,
        *,
        all_anew: bool,
    ) -> None:
        self._new, self._old, self._waiting, self._all_anew = new, old, waiting, all_anew
        self._since = pl.DataFrame(
            {"file": list(old.since), "since": list(old.since.values())},
            schema={"file": pl.String, "since": pl.Int64},
        )
        folder.mkdir()
        self.paths = folder / "kept", folder / "skipped"
        self.rows = 0, 0  # of each segment
        self.kept = 0  # traces that have a day, of records that this import has not read

    def build(self, build: Build) -> None:
        """Build traces, and write their rows: of some, while the next ones are built."""
        kept, skipped = (RowGroupWriter(path, RECORDS, SIZE, unlike=UNLIKE) for path in self.paths)
        with kept, skipped:
            for batch in _one_ahead(self._begin(rows, build) for rows in self._rows()):
                rows, traces = self._finish(batch, self._outcomes(batch))
                kept.write(rows.join(traces, on="trace", how="anti", maintain_order="left"))
                skipped.write(rows.join(traces, on="trace", how="semi", maintain_order="left"))
        self.rows = kept.rows, skipped.rows

    def _rows(self) -> Iterator[pl.DataFrame]:
        """Rows with their origin, in the order of traces, all of a trace in one piece."""
        old = self._old
        rewritten = [(path, _REWRITTEN) for path in old.rewritten]
        rewritten += [(path, _SKIPPED) for path in old.skipped_rewritten]
        streams = [map(partial(_with_origin, _NEW), run) for run in self._new.pieces()]
        streams += [map(partial(_with_origin, origin), pieces(path)) for path, origin in rewritten]
        for piece in chain.from_iterable(map(_of_few_traces, merged(streams, ORDER))):
            traces = piece.filter(pl.col("origin") == _NEW)["trace"].unique().sort()
            others = [
                _with_origin(origin, rows)
                for paths, origin in ((old.unchanged, _UNCHANGED), (old.skipped, _SKIPPED))
                for rows in _rows_of(traces, paths)
            ]
            rows = pl.concat([piece, *others]).sort(ORDER, nulls_last=True) if others else piece
            rows = self._without_closed(rows)
            if old.replaced.files:
                rows = old.replaced.without(with_digests(rows), self._new.number, old.closed)
                rows = rows.sort(ORDER, nulls_last=True)
            yield self._without_forgotten(with_digests(_limited(rows)))

    def _without_closed(self, rows: pl.DataFrame) -> pl.DataFrame:
        if self._old.closed.is_empty():
            return rows
        is_closed = pl.col("trace").is_in(self._old.closed.implode())
        is_known = (pl.col("told") < self._new.number).any().over("trace", "file")
        return rows.filter(pl.col("file").is_null() | ~is_closed | is_known)

    def _without_forgotten(self, rows: pl.DataFrame) -> pl.DataFrame:
        forgotten = self._old.forgotten
        if forgotten.is_empty():
            return rows
        traces = forgotten.filter(pl.col("digest").is_null())["trace"]
        records = rows.filter(~pl.col("trace").is_in(traces.implode()) | pl.col("file").is_null())
        return records.join(forgotten, on=CONTENT, how="anti", maintain_order="left")

    def _begin(self, rows: pl.DataFrame, build: Build) -> "_Batch":
        is_record = pl.col("file").is_not_null()
        records, outcomes = rows.filter(is_record), rows.filter(~is_record)
        texts = records.filter(pl.col("json").is_not_null()).unique(CONTENT, keep="first")
        texts = texts.select(*CONTENT, "json")
        is_kept = ~(pl.col("origin") == _NEW).any().over(CONTENT)
        valid = self._valid(records.with_columns(is_kept=is_kept)).drop("json")
        kept, valid = valid.filter("is_kept").select("trace").unique(), valid.drop("is_kept")
        contents = valid.unique(CONTENT, keep="first", maintain_order=True)
        contents = contents.join(texts, on=CONTENT, how="left", maintain_order="left")
        traces = list(self._traces(self._changed(rows, contents), contents, outcomes))
        unchanged = rows.filter(pl.col("origin") == _UNCHANGED).select("trace")
        rows = _new_rows(valid, records, texts)
        return _Batch(unchanged, kept, rows, outcomes, traces, build(traces))

    def _traces(
        self, changed: pl.DataFrame, contents: pl.DataFrame, outcomes: pl.DataFrame
    ) -> Iterator[TraceRecords]:
        """The records of the traces to build."""
        is_new = (pl.col("told") == self._new.number).any()
        is_too_large = LENGTH.sum() > bounds.TRACE_BYTES
        by_trace = contents.group_by("trace", maintain_order=True).agg(
            pl.when(~is_too_large).then("json"),
            "line",
            pl.first("file"),
            is_new=is_new,
            is_too_large=is_too_large,
        )
        days = outcomes.group_by("trace").agg(pl.col("day").drop_nulls().unique().sort())
        is_settled = pl.col("trace").is_in(self._waiting.settled.implode())
        rows = changed.with_columns(is_settled=is_settled)
        rows = rows.join(by_trace, on="trace", how="left", maintain_order="left")
        rows = rows.join(days, on="trace", how="left", maintain_order="left")
        columns = ("trace", "json", "line", "file", "day", "is_new", "is_settled", "is_too_large")
        for trace, texts, lines, file, in_days, new, settled, large in rows.select(
            columns
        ).iter_rows():
            yield TraceRecords(
                trace,
                () if large else texts or (),
                lines or (),
                file or "",
                in_days or (),
                is_new=bool(new),
                is_settled=bool(in_days) or (settled and not new),
                is_too_large=bool(large),
            )

    def _outcomes(self, batch: "_Batch") -> pl.DataFrame:
        """The outcomes of the traces of a batch, once they are built."""
        pairs = [*zip(batch.traces, batch.built(), strict=True)]
        self._waiting.take([(trace.trace, end.waits, trace.is_new) for trace, end in pairs])
        rows = [(trace.trace, end.day, end.is_skipped) for trace, end in pairs]
        return pl.DataFrame(rows, schema=_OUTCOMES, orient="row")

    def _finish(self, batch: "_Batch", outcomes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows to write, and which traces of these are skipped, once a batch is built."""
        has_day = outcomes.filter(pl.col("day").is_not_null())
        self.kept += len(has_day.join(batch.kept, on="trace", how="semi"))
        old = batch.old_outcomes.filter(~pl.col("origin").is_in([_NEW, _UNCHANGED]))
        # Of a trace that is built its former days count until it was put into its new one.
        is_built = pl.col("trace").is_in(outcomes["trace"].implode())
        former = old.filter(is_built, pl.col("day").is_not_null())
        last = old.filter(~is_built).unique("trace", keep="last", maintain_order=True)
        outcomes = outcomes.with_columns(told=pl.lit(self._new.number, pl.Int64))
        rows = stacked([batch.records, former, last, outcomes]).sort(ORDER, nulls_last=True)
        return rows, _skipped_traces(rows).join(batch.unchanged, on="trace", how="anti")

    def _valid(self, records: pl.DataFrame) -> pl.DataFrame:
        """The records that count, each content of a file once: where it was read first."""
        records = records.filter(~is_in(self._old.gone))
        if self._old.is_registry:
            by_file = ["trace", "file"]
            is_again = pl.col("digest").eq_missing(pl.col("digest").shift().over(by_file))
            records = records.filter(~is_again)
            return records.filter(pl.col("told") == pl.col("told").max().over(by_file))
        records = records.join(self._since, on="file", how="left", maintain_order="left")
        records = records.filter(pl.col("told") >= pl.col("since").fill_null(0)).drop("since")
        return records.unique([*CONTENT, "file"], keep="first", maintain_order=True)

    def _changed(self, rows: pl.DataFrame, contents: pl.DataFrame) -> pl.DataFrame:
        """The traces to build: those with new contents, and those that are touched."""
        if self._all_anew:
            return rows.select("trace").unique(maintain_order=True)
        new = contents.filter(pl.col("told") == self._new.number)
        touched = rows.filter(pl.col("file").is_null(), pl.col("origin") == _NEW)
        return pl.concat([new.select("trace"), touched.select("trace")]).unique().sort("trace")


@dataclass(frozen=True)
class _Batch:
    """Rows of some traces, while these are built."""

    unchanged: pl.DataFrame  # traces that have rows in unchanged segments
    kept: pl.DataFrame  # traces that have records which are not read now
    records: pl.DataFrame  # to write
    old_outcomes: pl.DataFrame
    traces: Sequence[TraceRecords]  # that are built
    built: Callable[[], Iterable[Outcome]]


def _one_ahead(batches: Iterable[_Batch]) -> Iterator[_Batch]:
    """Give each batch once the next one is begun."""
    before = None
    for batch in batches:
        if before:
            yield before
        before = batch
    if before:
        yield before


def _with_origin(origin: str, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(origin=pl.lit(origin))


def _rows_of(traces: pl.Series, segments: Sequence[Path]) -> Iterator[pl.DataFrame]:
    """The rows of traces, which are sorted; only row groups are read that may have any."""
    if traces.is_empty():
        return
    is_near = pl.col("trace").is_between(pl.lit(traces[0]), pl.lit(traces[-1]))
    for path in segments:
        rows = pl.scan_parquet(path, glob=False).filter(is_near)
        yield rows.filter(pl.col("trace").is_in(traces.implode())).collect()


def _of_few_traces(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Parts of rows: what a trace has in other segments may be long, and its new rows short."""
    if len(rows) <= _TRACES:
        return [rows]
    part = pl.col("trace").rle_id() // _TRACES
    return rows.with_columns(part=part).partition_by("part", include_key=False)


def _limited(rows: pl.DataFrame) -> pl.DataFrame:
    """Without the rows of a trace after those that make it too large."""
    before = (LENGTH.cum_sum() - LENGTH).over("trace")
    return rows.filter(before <= bounds.TRACE_BYTES)


def _skipped_traces(rows: pl.DataFrame) -> pl.DataFrame:
    """The traces that are no agent's, or were none and are not built anew."""
    was = (pl.col("origin") == _SKIPPED).any()
    by_trace = rows.group_by("trace").agg(is_skipped=pl.coalesce(pl.max("is_skipped"), was))
    return by_trace.filter("is_skipped").select("trace")


def _new_rows(valid: pl.DataFrame, records: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """The valid rows for the new segments, with JSON only in the first row of a content."""
    is_unchanged = pl.col("origin") == _UNCHANGED
    known = records.filter(is_unchanged, pl.col("json").is_not_null()).select(
        *CONTENT, is_known=pl.lit(value=True)
    )
    rows = valid.filter(~is_unchanged)
    rows = rows.join(texts, on=CONTENT, how="left", maintain_order="left")
    rows = rows.join(known.unique(CONTENT), on=CONTENT, how="left", maintain_order="left")
    is_first = pl.struct(CONTENT).is_first_distinct() & pl.col("is_known").is_null()
    rows = rows.with_columns(json=pl.when(is_first).then("json")).drop("is_known")
    return rows.with_columns(digest=pl.when(pl.col("json").is_null()).then("digest"))
