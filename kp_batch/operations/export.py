"""Exports traces with their scores: as examples, as training data, or as another archive."""

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from kp_batch.contracts import TIMESTAMP, arrow_schema
from kp_batch.errors import KpBatchError
from kp_batch.operations.export_choice import Choice, Chosen, choose
from kp_batch.operations.export_distinct import choose_distinct
from kp_batch.operations.export_forms import Form
from kp_batch.operations.export_rows import LeftOut, read_chosen
from kp_batch.operations.results import Exported
from kp_batch.progress import progress
from kp_batch.sql import SQL, read_parquet, statement
from kp_batch.staging import Staging
from kp_batch.warehouse.manifest import require_manifest
from kp_batch.warehouse.relations import create_view

_KEY = {"trace_id": pl.String(), "created_at": TIMESTAMP}
_ROWS = 1_000  # written at once
_FILES_NAMED = 5


def export(warehouse: Path, choice: Choice, form: Form, output: Path) -> Exported:
    """Write scored traces, read again from the archive, in the order of created_at and id.

    With `top` they stand in the order of score and id, the best first.

    Each has its score as `metadata.quality_score`, and as `metadata.quality_score_from` where that
    is from: run_id, encoder_id, cache_id, cache_group, profile_id and source_file. JSONL keeps all
    fields of a trace as its file has them. Parquet has those of `contracts.EXPORTED`: it leaves out
    all others, such as metadata.validated_by, and has what a step says as JSON where it is no text.
    Whoever scores the export finds the content that was scored.

    A trace is left out that its file no longer holds as it was scored, or that is private; see
    `read_chosen`. Time is linear in what is read, but for --distinct; see `Distinct`. Memory is
    that of a batch, and with --distinct of the vectors that are taken: the traces that were read
    wait on the disk.

    Args:
        warehouse: the folder of the tables, of which nothing is changed.
        choice: which traces.
        form: of the file, one of `FORMS`.
        output: the file, which is not whole until this returns.

    Raises:
        KpBatchError: see `choose`; or traces were forgotten meanwhile, which may be in the file.
        WarehouseError: it is no warehouse, or vectors are missing.
    """
    forgotten = _forgotten(warehouse)
    with (
        Staging.temporary() as staging,
        staging.connect() as connection,
        output.open("wb") as file,
    ):
        chosen, read = (staging.folder / f"{name}.parquet" for name in ("chosen", "read"))
        meet = choose(warehouse, choice, staging.folder, chosen)
        left_out = _stage(chosen, meet.traces, read, form, private=choice.private)
        create_view(connection, "main", "chosen", read_parquet(chosen))
        create_view(connection, "main", "read", read_parquet(read))
        kept = statement("read")
        if choice.distinct is not None:
            choose_distinct(warehouse, connection, staging.vectors, choice.distinct)
            kept = statement("read SEMI JOIN kept USING (trace_id)")
        [(left,)] = connection.execute(
            statement("SELECT count(*) FROM $kept", kept=kept)
        ).fetchall()
        traces = connection.sql(_ordered(kept, choice.top))
        form.write(traces.to_arrow_reader(_ROWS), file)
    if _forgotten(warehouse) != forgotten:
        raise KpBatchError("traces were forgotten meanwhile; export again")
    return _told(meet, int(left), choice.top, left_out)


def _ordered(kept: SQL, top: int | None) -> SQL:
    """The query of what is written, in its order."""
    if top is None:
        return statement("FROM $kept ORDER BY created_at, trace_id", kept=kept)
    return statement(
        "FROM $kept JOIN (SELECT trace_id, score AS best FROM chosen) USING (trace_id) "
        "ORDER BY best DESC, trace_id LIMIT $top",
        kept=kept,
        top=top,
    )


def _forgotten(warehouse: Path) -> int | None:
    """The version of the table that tells which traces are forgotten."""
    return require_manifest(warehouse).tables.get("forgotten")


def _stage(chosen: Path, count: int, read: Path, form: Form, *, private: bool) -> LeftOut:
    """Write the traces that can be read again into a file, and tell which ones cannot."""
    left_out, schema = LeftOut(), pl.Schema({**_KEY, **form.schema})
    with (
        pq.ParquetWriter(read, arrow_schema(schema), compression="lz4") as writer,
        progress("reading again", count, "trace") as shown,
    ):
        for batch in read_chosen(chosen, left_out, private=private):
            keys = [(each.trace_id, each.created_at) for each, _ in batch]
            traces = form.held([trace for _, trace in batch])
            held = pl.DataFrame(keys, schema=_KEY, orient="row").hstack(traces)
            writer.write_table(held.to_arrow())
            shown.add(len(batch))
    return left_out


def _told(meet: Chosen, left: int, top: int | None, left_out: LeftOut) -> Exported:
    written = left if top is None else min(left, top)
    return Exported(
        chosen=meet.traces,
        exported=written,
        private=left_out.private,
        similar=meet.traces - left_out.private - left_out.unread.total() - left,
        unread=dict(left_out.unread),
        unread_files=tuple(left_out.files)[:_FILES_NAMED],
        beyond=left - written,
        conditions=meet.conditions,
    )
