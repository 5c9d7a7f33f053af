"""Export traces with their scores: as examples, as training data, or as another archive.

`ExportOptions` choose them in the tables. Their content is read again from the archive. Traces that
are private, gone, or similar to a better one are left out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq

from kp_batch.duck import SQL, read_parquet, statement
from kp_batch.errors import KpBatchError, Unread
from kp_batch.exports.choosing import choose, chosen_traces
from kp_batch.exports.comparing import ExportComparison, compare_exports
from kp_batch.exports.earlier import earlier_scores
from kp_batch.exports.export_options import ExportOptions
from kp_batch.exports.formats import writer_of
from kp_batch.exports.formats.model import ChosenTrace, ExportFormat, FileWriter, Row
from kp_batch.exports.output import check_output, output_names
from kp_batch.exports.ranking import keep_best, split_exported
from kp_batch.files import replacing
from kp_batch.html import Displayed
from kp_batch.ingest.reread import Trace, reread_batches
from kp_batch.log import progress, warn
from kp_batch.schemas import TIMESTAMP, arrow_schema
from kp_batch.text import count_of, printable
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.snapshot import create_view
from kp_batch.warehouse.staging import Staging

_WRITTEN_AT_ONCE = 1_000  # rows
_FILES_NAMED = 5
# Traces with these values, or with none, may be shared.
_SHARED = {"visibility": ("network", "org"), "privacy_level": ("aggregated", "federated")}
# The columns that select and order traces.
_KEY = {
    "trace_id": pl.String(),
    "created_at": TIMESTAMP,
    "score": pl.Float64(),
    "encoder_id": pl.String(),
    "text_hash": pl.String(),
}


@dataclass(frozen=True)
class ExportResult(Displayed):
    """What an export wrote, and what it left out."""

    chosen: int  # traces that meet the conditions; the sum of the counts below
    exported: int
    private: int
    dropped_similar: int  # similar to a better one
    not_found: dict[Unread, int]  # gone or changed since they were scored, by the reason
    not_found_files: tuple[str, ...]  # the first few files of these traces
    not_written: dict[str, int] = field(default_factory=dict[str, int])  # by the format's reason
    dropped_by_per: int = 0  # not among the best of their value in a column of `per`
    dropped_by_top: int = 0  # not among the best `top`
    # For each condition in words, in order, the number of traces that it removes.
    conditions: dict[str, int] = field(default_factory=dict[str, int])
    training: int | None = None  # exported traces in the first file of a split
    ids_without_score: int = 0  # ids in `ids` without a score
    deleted: int | None = None  # scores in the file `deleted`
    comparison: ExportComparison | None = None  # with the earlier export `compare_with`


@dataclass
class TraceRows:
    """Makes the row of each trace, and counts the traces that are left out."""

    form: ExportFormat
    options: ExportOptions
    private: int = 0
    not_found: Counter[Unread] = field(default_factory=Counter[Unread])
    files: dict[str, None] = field(default_factory=dict[str, None])  # that lack traces
    not_written: Counter[str] = field(default_factory=Counter[str])

    def of(
        self, batch: Iterable[tuple[ChosenTrace, Trace | Unread]]
    ) -> Iterator[tuple[ChosenTrace, Row]]:
        """Yield the rows of traces that were read, may be shared, and can be written."""
        for scored, trace in batch:
            if isinstance(trace, str):  # it can no longer be read as it was scored
                self.not_found[trace] += 1
                self.files[scored.source_file] = None
            elif not self.options.include_private and _is_private(trace):
                self.private += 1
            elif isinstance(row := self.form.row(scored, trace, self.options), str):
                self.not_written[row] += 1
            else:
                yield scored, row

    @property
    def left_out(self) -> int:
        """The number of traces that are left out."""
        return self.private + self.not_found.total() + self.not_written.total()


def export(warehouse: Path, options: ExportOptions, *files: Path, ending: str) -> ExportResult:
    """Read scored traces again from the archive, and write them ordered by created_at and id.

    With `per` or `top`, the order is by score and id, the best first.

    Traces are left out and counted if they are private, their file no longer has the scored text,
    or the format cannot express them. Time is linear in the traces, except for `distinct`; see
    `Distinct`. Memory holds a batch, and with `distinct` also the vectors of distinct traces. The
    traces that were read are staged on disk.

    Args:
        warehouse: the folder of the tables; it is not changed.
        options: the conditions and the format.
        files: one file for each of `output_names`; incomplete until this returns.
        ending: the ending of the file, such as ".jsonl"; it chooses the kind of file.

    Raises:
        KpBatchError: DuckDB refuses the condition in SQL; traces lack the vectors that `distinct`
            needs; the format has no files with this ending; or traces were forgotten meanwhile.
        WarehouseError: there is no warehouse, vectors are missing, or the tables of the run
            `only_changed` were removed.
    """
    form, writer = writer_of(options.format, ending)
    earlier = earlier_scores(options.compare_with) if options.compare_with else None
    forgotten = _forgotten_lists(warehouse)
    with Staging.temporary() as staging, staging.connect() as connection:
        chosen, read = (staging.folder / f"{name}.parquet" for name in ("chosen", "read"))
        choice = choose(warehouse, options, chosen, all_scores=form.is_scores)
        rows_of = TraceRows(form, options)
        _stage(chosen, choice.count, read, rows_of, writer)
        create_view(connection, "main", "read", read_parquet(read))
        kept = keep_best(warehouse, connection, staging, options, chosen)
        parts, training = [statement("exported")], None
        if options.split:
            training = split_exported(connection, options, chosen)
            rest = statement("(FROM exported ANTI JOIN training USING (trace_id))")
            parts = [statement("training"), rest]
        for part, file in zip(parts, files, strict=False):  # the last file may be for ids
            _write(connection, part, writer, file, best_first=options.best_first)
        comparison = None
        if earlier is not None:
            comparison = compare_exports(warehouse, connection, chosen, earlier)
    if options.deleted:
        ids = map(form.score_id or str, choice.unscored)
        files[-1].write_text("".join(f"{one}\n" for one in ids), "utf-8")
    if _forgotten_lists(warehouse) != forgotten:
        raise KpBatchError("traces were forgotten during the export; export again")
    return ExportResult(
        chosen=choice.count,
        exported=kept.top,
        private=rows_of.private,
        dropped_similar=choice.count - rows_of.left_out - kept.distinct,
        not_found=dict(rows_of.not_found),
        not_found_files=tuple(rows_of.files)[:_FILES_NAMED],
        not_written=dict(rows_of.not_written),
        dropped_by_per=kept.distinct - kept.per,
        dropped_by_top=kept.per - kept.top,
        conditions=choice.left_out,
        training=training,
        ids_without_score=choice.unscored_ids,
        deleted=len(choice.unscored) if options.deleted else None,
        comparison=comparison,
    )


def _forgotten_lists(warehouse: Path) -> Mapping[str, str] | None:
    return require_manifest(warehouse).tables.get("forgotten")


def _stage(chosen: Path, count: int, path: Path, rows_of: TraceRows, writer: FileWriter) -> None:
    """Write the rows of the chosen traces to a file, with the columns of `_KEY`."""
    schema, key = pl.Schema({**_KEY, **writer.schema}), attrgetter(*_KEY)
    with (
        pq.ParquetWriter(path, arrow_schema(schema), compression="lz4") as parquet,
        progress("reading again", count, "trace") as bar,
    ):
        for batch in reread_batches(chosen_traces(chosen)):
            pairs = list(rows_of.of(batch))
            keys = pl.DataFrame([key(scored) for scored, _ in pairs], schema=_KEY, orient="row")
            # A column of the format with the name of a key has the same values.
            frame = writer.to_frame([row for _, row in pairs]).drop(_KEY, strict=False)
            parquet.write_table(keys.hstack(frame).to_arrow())
            bar.add(len(batch))


def _write(
    connection: duckdb.DuckDBPyConnection,
    part: SQL,
    writer: FileWriter,
    path: Path,
    *,
    best_first: bool,
) -> None:
    """Write the rows of one part to a file."""
    rows = statement("(FROM read SEMI JOIN $part AS part USING (trace_id))", part=part)
    if best_first:
        query = statement("FROM $rows ORDER BY score DESC, trace_id", rows=rows)
    else:
        query = statement("FROM $rows ORDER BY created_at, trace_id", rows=rows)
    with path.open("wb") as file:
        writer.write(connection.sql(query).to_arrow_reader(_WRITTEN_AT_ONCE), file)


def _is_private(trace: Trace) -> bool:
    """Whether it has a value that is not in `_SHARED`, such as "Private"."""
    metadata = trace["metadata"]
    return any(metadata.get(name) not in (None, *shared) for name, shared in _SHARED.items())


def export_to(warehouse: Path, options: ExportOptions, output: Path) -> ExportResult:
    """Export to a file, and replace it when the export is complete; see `export`.

    Raises:
        KpBatchError: the format has no files with this ending, the file is in the archive or the
            warehouse, it cannot be written, or no trace could be exported.
    """
    ending = output.suffix.lower()
    writer_of(options.format, ending)
    with ExitStack() as stack:
        partials: list[Path] = []
        for path in map(Path, output_names(options, str(output))):
            check_output(warehouse, path.absolute())
            partial = replacing(path, private=options.include_private)
            partials.append(stack.enter_context(partial))
        result = export(warehouse, options, *partials, ending=ending)
        check_parts(result, options, str(output))
    return result


def check_parts(result: ExportResult, options: ExportOptions, output: str) -> None:
    """Check that traces were exported, or scores are to be deleted; warn of an empty part.

    Raises:
        KpBatchError: no chosen trace could be written.
    """
    if result.chosen and not result.exported and not result.deleted:
        raise KpBatchError(
            f"none of {count_of(result.chosen, 'chosen trace')} could be exported "
            f"({_left_out(result)}); {printable(output)} is unchanged; choose other traces"
        )
    if result.training is not None and result.exported:
        _warn_of_empty_parts(result, options, output)


def _warn_of_empty_parts(result: ExportResult, options: ExportOptions, output: str) -> None:
    training = result.training or 0
    counts = (training, result.exported - training)
    for name, count in zip(output_names(options, output), counts, strict=False):
        if not count:
            unit = "task" if options.split_by == "objective" else "time"
            warn(
                f"{printable(name)} is empty: there are too few {unit}s for the share "
                f"{options.split}, because traces of one {unit} stay together; export traces of "
                f"more {unit}s, or choose another share"
            )


def _left_out(result: ExportResult) -> str:
    counts = {
        "private": result.private,
        "similar": result.dropped_similar,
        **result.not_found,
        **result.not_written,
    }
    return ", ".join(
        f"{count_of(count, 'trace')} {what}" for what, count in counts.items() if count
    )
