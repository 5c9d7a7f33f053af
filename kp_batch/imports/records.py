"""What the files of a source told, kept in the archive's own state, and brought together by trace.

A row tells that a file told a content. A content that was known before has no JSON in its row, only
its digest: the JSON stands where it was told first. A row without a file tells what became of the
trace: the day in which it was put. Rows stand in segments, one of each import, by trace; segments
are merged as they grow, so that a night rewrites no more than some times what it has read.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path

import polars as pl

from kp_batch import limits
from kp_batch.imports.model import SourceRecord
from kp_batch.imports.sorted_runs import RowGroupWriter, SortedRuns, merged, pieces
from kp_batch.text import encodable

RECORDS = pl.Schema(
    {
        "trace": pl.String,  # its native id
        "told": pl.Int64,  # the number of the import that read it
        "file": pl.String,  # null: this row tells what became of the trace
        "position": pl.Int64,  # among the records of the file
        "line": pl.Int64,  # of the file, where it has lines
        "json": pl.String,  # null: it is known by its digest
        "digest": pl.Binary,  # of the JSON; null where that stands beside it
        "day": pl.String,  # where the trace was put; null if in none
    }
)
FORGOTTEN = pl.Schema({"trace": pl.String, "digest": pl.Binary})  # null: all of the trace
_OUTCOMES = pl.Schema({"trace": pl.String, "day": pl.String, "is_skipped": pl.Boolean})
_BY = ("trace", "told", "file", "position")  # the order of first tellings
_CONTENT = ("trace", "digest")
_LENGTH = pl.col("json").str.len_bytes().fill_null(0)
_SIZE = _LENGTH + 32
_NEW, _REWRITTEN, _STANDING, _SKIPPED = "new", "rewritten", "standing", "skipped"


@dataclass(frozen=True)
class TraceRecords:
    """All that was told of one trace.

    Attributes:
        trace: its native id.
        contents: JSON, each content once, in the order in which it was first told; none, if all
            that was told of it is void by now.
        lines: of its file that told each content first, where it has lines.
        file: that told the first one.
        days: in which the trace may stand.
    """

    trace: str
    contents: Sequence[str]
    lines: Sequence[int | None]
    file: str
    days: Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """What became of a trace: the day in which it is put, if any; or that it is no agent's."""

    day: str | None = None
    is_skipped: bool = False


# Begins to build traces; what is returned waits for it, and tells what became of each.
Build = Callable[[Sequence[TraceRecords]], Callable[[], Iterable[Outcome]]]


class NewRecords:
    """What an import reads.

    Args:
        folder: for what does not fit into memory.
        number: of the import.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self._runs = SortedRuns(folder, RECORDS, _BY, _SIZE)
        self._void: set[str] = set()

    def add(self, record: SourceRecord, file: str, position: int) -> None:
        """Take a record; one that is nested too deep is kept as one that is too large."""
        try:
            content = limits.dump(record.payload)
        except RecursionError:
            content = b"null"
        trace, digest = encodable(record.trace), _digest(content)
        row = (trace, self.number, file, position, record.line, content.decode(), digest, None)
        self._runs.add(row, len(content))

    def touch(self, traces: pl.Series) -> None:
        """Have traces built, though nothing new is told of them."""
        for trace in traces:
            self._runs.add((trace, self.number, *(None,) * 6), len(trace))

    def void(self, file: str) -> None:
        """Take back what a file told: it turned out to be damaged."""
        self._void.add(file)

    def pieces(self) -> Iterator[Iterator[pl.DataFrame]]:
        """The rows, in runs."""
        stays = ~pl.col("file").is_in(list(self._void)).fill_null(value=False)
        for run in self._runs.runs():
            yield (piece.filter(stays) for piece in pieces(run))

    def runs(self) -> list[Path]:
        """The files that hold them."""
        return self._runs.runs()

    def adopt(self, runs: Sequence[Path]) -> None:
        """Take runs of other records of the same import."""
        self._runs.adopt(runs)

    def bytes(self) -> int:
        """How much they take on the disk."""
        return sum(run.stat().st_size for run in self.runs())


@dataclass(frozen=True)
class Segments:
    """Files of `RECORDS` that were there before.

    Attributes:
        rewritten: all their rows go into the new segment.
        standing: they stay as they are.
        skipped: likewise, of traces that are no agent's.
        skipped_again: of these, those of which all rows go into the new one.
        since: of files whose content was replaced, the number of the import that did so.
        is_registry: whether of each trace only what a file told last counts.
        forgotten: rows of `FORGOTTEN`: what is kept out for good.
    """

    rewritten: Sequence[Path] = ()
    standing: Sequence[Path] = ()
    skipped: Sequence[Path] = ()
    skipped_again: Sequence[Path] = ()
    since: Mapping[str, int] = field(default_factory=dict[str, int])
    is_registry: bool = False
    forgotten: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FORGOTTEN))


class Join:
    """Brings together what is new and what was told before.

    Args:
        new: what an import has read.
        old: what there was.
        folder: for the two new segments: `kept` and `skipped`.
        all_anew: whether all traces are built, and not only those of which something new is told.
    """

    def __init__(self, new: NewRecords, old: Segments, folder: Path, *, all_anew: bool) -> None:
        self._new, self._old, self._all_anew = new, old, all_anew
        self._since = pl.DataFrame(
            {"file": list(old.since), "since": list(old.since.values())},
            schema={"file": pl.String, "since": pl.Int64},
        )
        folder.mkdir()
        self.paths = folder / "kept", folder / "skipped"
        self.rows = 0, 0  # that each of them has

    def build(self, build: Build) -> None:
        """Build traces, and write what is told of them: of some, while the next ones are built."""
        kept, skipped = (RowGroupWriter(path, RECORDS, _SIZE) for path in self.paths)
        with kept, skipped:
            for piece in _with_next(self._begun(rows, build) for rows in self._rows()):
                written, is_skipped = self._built(piece)
                kept.write(written.join(is_skipped, on="trace", how="anti", maintain_order="left"))
                skipped.write(
                    written.join(is_skipped, on="trace", how="semi", maintain_order="left")
                )
        self.rows = kept.rows, skipped.rows

    def _rows(self) -> Iterator[pl.DataFrame]:
        """Rows by trace, with all that was told of a trace in one piece, and where each is from."""
        streams = [map(partial(_with, origin=_NEW), run) for run in self._new.pieces()]
        for paths, origin in (
            (self._old.rewritten, _REWRITTEN),
            (self._old.skipped_again, _SKIPPED),
        ):
            streams += [map(partial(_with, origin=origin), pieces(path)) for path in paths]
        for piece in merged(streams, _BY):
            touched = piece.filter(pl.col("origin") == _NEW).select("trace").unique()
            stand = [_with(each, _STANDING) for each in _rows_of(touched, self._old.standing)]
            skip = [_with(each, _SKIPPED) for each in _rows_of(touched, self._old.skipped)]
            known = [*stand, *skip]
            rows = pl.concat([piece, *known]).sort(_BY, nulls_last=True) if known else piece
            yield self._without_forgotten(_digested(_limited(rows)))

    def _without_forgotten(self, rows: pl.DataFrame) -> pl.DataFrame:
        gone = self._old.forgotten
        if gone.is_empty():
            return rows
        traces = gone.filter(pl.col("digest").is_null())
        is_gone = pl.col("trace").is_in(traces["trace"].implode())
        records = rows.filter(~is_gone | pl.col("file").is_null())
        return records.join(gone, on=_CONTENT, how="anti", maintain_order="left")

    def _begun(self, rows: pl.DataFrame, build: Build) -> "_Piece":
        """Begin to build the traces of rows."""
        is_record = pl.col("file").is_not_null()
        told, became = rows.filter(is_record), rows.filter(~is_record)
        texts = told.filter(pl.col("json").is_not_null()).unique(_CONTENT, keep="first")
        texts = texts.select(*_CONTENT, "json")
        valid = self._valid(told).drop("json")
        contents = valid.unique(_CONTENT, keep="first", maintain_order=True)
        contents = contents.join(texts, on=_CONTENT, how="left", maintain_order="left")
        traces = list(_traces(self._changed(rows, contents), contents, became))
        standing = rows.filter(pl.col("origin") == _STANDING).select("trace")
        return _Piece(standing, _unknown(valid, told, texts), became, traces, build(traces))

    def _built(self, piece: "_Piece") -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows to write, and the traces of the skipped ones, once a piece is built."""
        became, outcomes = piece.became, piece.outcomes()
        before = became.filter(~pl.col("origin").is_in([_NEW, _STANDING]))
        # Of a trace that is built its former days count until it was put into its new one.
        is_built = pl.col("trace").is_in(outcomes["trace"].implode())
        before = pl.concat(
            [
                before.filter(is_built, pl.col("day").is_not_null()),
                before.filter(~is_built).unique("trace", keep="last", maintain_order=True),
            ]
        )
        outcomes = outcomes.with_columns(told=pl.lit(self._new.number, pl.Int64))
        written = pl.concat([piece.unknown, before, outcomes], how="diagonal")
        skipped = _skipped_traces(written).join(piece.standing, on="trace", how="anti")
        return written.sort(_BY, nulls_last=True), skipped

    def _valid(self, told: pl.DataFrame) -> pl.DataFrame:
        """The rows that count, each content of a file once: where it was told first."""
        if self._old.is_registry:
            by_file = ["trace", "file"]
            is_again = pl.col("digest").eq_missing(pl.col("digest").shift().over(by_file))
            told = told.filter(~is_again)
            return told.filter(pl.col("told") == pl.col("told").max().over(by_file))
        told = told.join(self._since, on="file", how="left", maintain_order="left")
        told = told.filter(pl.col("told") >= pl.col("since").fill_null(0)).drop("since")
        return told.unique([*_CONTENT, "file"], keep="first", maintain_order=True)

    def _changed(self, rows: pl.DataFrame, contents: pl.DataFrame) -> pl.DataFrame:
        """The traces that are built: of which something new is told, or which are touched."""
        if self._all_anew:
            return rows.select("trace").unique(maintain_order=True)
        news = contents.filter(pl.col("told") == self._new.number)
        touched = rows.filter(pl.col("file").is_null(), pl.col("origin") == _NEW)
        return pl.concat([news.select("trace"), touched.select("trace")]).unique().sort("trace")


@dataclass(frozen=True)
class _Piece:
    """Rows of some traces, while these are built."""

    standing: pl.DataFrame
    unknown: pl.DataFrame  # that tell what no standing one does
    became: pl.DataFrame  # that tell what became of a trace
    traces: Sequence[TraceRecords]  # that are built
    built: Callable[[], Iterable[Outcome]]

    def outcomes(self) -> pl.DataFrame:
        """What became of each trace."""
        rows = zip(self.traces, self.built(), strict=True)
        found = [(told.trace, each.day, each.is_skipped) for told, each in rows]
        return pl.DataFrame(found, schema=_OUTCOMES, orient="row")


def _with_next(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """Give pieces once the next one is begun."""
    before = None
    for piece in pieces:
        if before:
            yield before
        before = piece
    if before:
        yield before


def _with(rows: pl.DataFrame, origin: str) -> pl.DataFrame:
    return rows.with_columns(origin=pl.lit(origin))


def _rows_of(traces: pl.DataFrame, segments: Sequence[Path]) -> Iterator[pl.DataFrame]:
    """The rows of some traces; of a segment the row groups are read that may have any."""
    wanted = traces.to_series().sort()
    if wanted.is_empty():
        return
    is_near = pl.col("trace").is_between(pl.lit(wanted[0]), pl.lit(wanted[-1]))
    for path in segments:
        rows = pl.scan_parquet(path, glob=False).filter(is_near)
        yield rows.filter(pl.col("trace").is_in(wanted.implode())).collect()


def _limited(rows: pl.DataFrame) -> pl.DataFrame:
    """Without what comes after so much of a trace that it is refused as too large."""
    before = (_LENGTH.cum_sum() - _LENGTH).over("trace")
    return rows.filter(before <= limits.TRACE_BYTES)


def _digested(rows: pl.DataFrame) -> pl.DataFrame:
    """With the digest of each content."""
    lacking = pl.when(pl.col("digest").is_null()).then("json")
    made = lacking.cast(pl.Binary).map_elements(_digest, pl.Binary, skip_nulls=True)
    return rows.with_columns(digest=pl.coalesce("digest", made))


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def _skipped_traces(rows: pl.DataFrame) -> pl.DataFrame:
    """The traces that are no agent's, or were none and are not built anew."""
    was = (pl.col("origin") == _SKIPPED).any()
    by_trace = rows.group_by("trace").agg(is_skipped=pl.coalesce(pl.max("is_skipped"), was))
    return by_trace.filter("is_skipped").select("trace")


def _traces(
    changed: pl.DataFrame, contents: pl.DataFrame, became: pl.DataFrame
) -> Iterator[TraceRecords]:
    """What is told of the traces that are built."""
    by_trace = contents.group_by("trace", maintain_order=True).agg("json", "line", pl.first("file"))
    days = became.group_by("trace").agg(pl.col("day").drop_nulls().unique().sort())
    found = changed.join(by_trace, on="trace", how="left", maintain_order="left")
    found = found.join(days, on="trace", how="left", maintain_order="left")
    for trace, texts, lines, file, stands in found.iter_rows():
        yield TraceRecords(trace, texts or (), lines or (), file or "", stands or ())


def _unknown(valid: pl.DataFrame, told: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """The rows that tell what no standing one does, each content's JSON in one row at the most."""
    stands = pl.col("origin") == _STANDING
    rows = valid.filter(~stands)
    known = told.filter(stands, pl.col("json").is_not_null()).select(
        *_CONTENT, is_known=~pl.col("json").is_null()
    )
    rows = rows.join(texts, on=_CONTENT, how="left", maintain_order="left")
    rows = rows.join(known.unique(_CONTENT), on=_CONTENT, how="left", maintain_order="left")
    is_first = pl.struct(_CONTENT).is_first_distinct() & pl.col("is_known").is_null()
    rows = rows.with_columns(json=pl.when(is_first).then("json")).drop("is_known")
    return rows.with_columns(digest=pl.when(pl.col("json").is_null()).then("digest"))


def traces_of(segments: Sequence[Path], which: pl.Expr | None = None) -> pl.Series:
    """The traces of which some rows tell, each once; of all, unless rows are chosen."""
    if not segments:
        return pl.Series(dtype=pl.String)
    rows = pl.scan_parquet(list(segments), glob=False)
    chosen = rows if which is None else rows.filter(which)
    return chosen.select("trace").unique().collect().to_series().sort()


def no_longer_told(before: Sequence[Path], now: Sequence[Path], files: Collection[str]) -> int:
    """Of how many traces files told before, and not now.

    Args:
        before: segments.
        now: Parquet files with the columns `trace` and `file`.
        files: the paths of the files.
    """
    if not before:
        return 0
    known, told = (
        pl.scan_parquet(list(paths), glob=False, missing_columns="insert")
        .filter(pl.col("file").is_in(list(files)))
        .select("trace", "file")
        .unique()
        for paths in (before, now)
    )
    return int(known.join(told, on=["trace", "file"], how="anti").select(pl.len()).collect().item())


def told_by_these_alone(segments: Sequence[Path], files: Sequence[str]) -> pl.DataFrame:
    """The contents, as `FORGOTTEN` has them, that these files told, or files below them, alone."""
    names = [file.rstrip("/") for file in files]
    is_of = pl.any_horizontal(
        pl.col("file").is_in(names), *(pl.col("file").str.starts_with(f"{x}/") for x in names)
    )
    found = [pl.DataFrame(schema=FORGOTTEN)]
    for rows in merged([pieces(path) for path in segments], _BY):
        told = _digested(rows).filter(pl.col("file").is_not_null())
        contents = told.group_by(_CONTENT, maintain_order=True).agg(alone=is_of.all())
        found.append(contents.filter("alone").select(FORGOTTEN.names()))
    return pl.concat(found)
