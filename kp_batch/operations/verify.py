"""Some traces computed once more, from the archive's files, against what is published of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from kp_batch.archive.reading import UnreadableError, read_rows
from kp_batch.archive.sources import content_digest, described
from kp_batch.contracts import FACTS, NOVELTY, SCORES
from kp_batch.embedding.encoders import load_encoder
from kp_batch.operations.reference import Meeting
from kp_batch.planning.changes import Archive
from kp_batch.planning.ingest import staged
from kp_batch.planning.scorer import NO_ENCODER
from kp_batch.progress import progress
from kp_batch.scoring.composite import composite, score
from kp_batch.scoring.profiles import WeightProfile
from kp_batch.staging import Stage
from kp_batch.text import aligned, printable
from kp_batch.warehouse.manifest import require_manifest

# All is the same to the bit, but for a vector, whose last bits depend on the texts beside which it
# was embedded: components of one text's vectors differed by 3e-7 at the most.
VECTOR_TOLERANCE = 1e-5
_COMPARED = [name for name in SCORES if name in {*FACTS, *NOVELTY, "composite", "score"}]


def verify(warehouse: Path, traces: int, stage: Stage, *, embed: bool) -> dict[str, Any]:
    """Compute some published traces from scratch: facts, text, vector, window and score.

    Args:
        warehouse: the folder of the tables.
        traces: how many, drawn by chance.
        stage: for what does not fit into memory.
        embed: whether to embed their texts again.

    Returns:
        missing: how many traces of the archive have no score.
        sampled, checked: numbers of traces; the others' files are gone, unreadable or changed.
        wrong: in words, what is beyond tolerance; empty: nothing.
        differences: of each column the greatest difference (of what is no number 1 or 0), the
        tolerance, and the trace that shows it.

    Raises:
        WarehouseError: it is no warehouse, or vectors are missing.
    """
    with Archive(warehouse, require_manifest(warehouse).tables, stage) as archive:
        sampled = archive.sample(traces)
        stored = sampled.join(_own(sampled), on=("source_file", "row"), suffix="_now")
        fresh = _vectors(archive, stored) if embed else {}
        met = Meeting(warehouse, archive, fresh)
        with progress("verifying", len(stored), "traces") as shown:
            rows = [met.again(row, shown) for row in stored.iter_rows(named=True)]
        profiles = archive.table("profiles").drop("profile_id").iter_rows(named=True)
        again = (
            stored.select(
                "profile_id",
                *(pl.col(f"{name}_now").alias(name) for name in _COMPARED if name in FACTS),
            )
            .hstack(pl.DataFrame(rows, schema={**NOVELTY, "vector": pl.Float64}, orient="row"))
            .with_columns(composite(WeightProfile(**each) for each in profiles))
            .with_columns(score())
        )
        missing = archive.missing()
    unknown = sampled.filter(pl.col("file_id").is_null()).get_column("trace_id").to_list()
    differences = list(_differences(stored.with_columns(vector=0.0), again))
    return {
        "missing": missing,
        "sampled": len(sampled),
        "checked": len(stored),
        "differences": differences,
        "wrong": "; ".join(_wrong(missing, unknown, differences)),
    }


def as_text(result: dict[str, Any]) -> str:
    """The result as a person reads it in a terminal."""
    skipped = result["sampled"] - result["checked"]
    rows = [
        {
            "column": each["column"],
            "greatest difference": f"{each['greatest']:.3g}",
            "tolerance": f"{each['tolerance']:.3g}",
            "trace": printable(each["trace_id"] or ""),
        }
        for each in result["differences"]
    ]
    return "\n".join(
        [
            f"{result['checked']:,} traces verified"
            + (f", {skipped:,} skipped: their files are gone or changed" if skipped else ""),
            "",
            *aligned(rows),
        ]
    )


def _wrong(missing: int, unknown: list[str], differences: list[dict[str, Any]]) -> Iterator[str]:
    if unknown:
        yield f"{len(unknown):,} scored traces (such as {unknown[0]}) stand in no file so"
    if missing:
        yield f"{missing:,} traces of the archive have no score"
    for each in differences:
        if not each["greatest"] <= each["tolerance"]:
            yield f"{each['column']} of {each['trace_id']} is off by {each['greatest']:.3g}"


def _own(sampled: pl.DataFrame) -> pl.DataFrame:
    """The rows as their files have them now, with all that is taken from them."""
    schema = {**FACTS, "source_file": pl.String, "text": pl.String}
    frames = [pl.DataFrame(schema=schema)]
    readable = sampled.filter(pl.col("status") == "read")
    for (path, file_id), rows in readable.group_by("source_file", "file_id"):
        try:
            source = described(str(path))
            if not str(file_id).startswith(f"{content_digest(source)}-"):
                continue
            batches = [
                staged(batch.filter(pl.col("row").is_in(rows.get_column("row").implode())))
                for batch in read_rows(source)
            ]
        except (OSError, UnreadableError):
            continue
        frames += [
            batch.with_columns(file_id=pl.lit(file_id)).select(list(schema)) for batch in batches
        ]
    return pl.concat(frames)


def _vectors(archive: Archive, rows: pl.DataFrame) -> dict[tuple[str, str], Any]:
    """The vectors of the rows' texts, made again, by encoder and text hash."""
    done = archive.table("runs").filter(pl.col("status") == "done").sort("started_at")
    told = json.loads(done.item(-1, "config")) if len(done) else {"embedder": NO_ENCODER}
    encoder = load_encoder(told["embedder"])
    if encoder is None or rows.is_empty():
        return {}
    texts = rows.filter(pl.col("encoder_id") == encoder.encoder_id).unique("text_hash")
    hashes = texts.get_column("text_hash_now")
    vectors = encoder.encode(texts.get_column("text").to_list())
    return {(encoder.encoder_id, each): vectors[row] for row, each in enumerate(hashes)}


def _differences(stored: pl.DataFrame, again: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for name in (*_COMPARED, "vector"):
        was, now = stored.get_column(name), again.get_column(name)
        off = was.ne_missing(now).cast(pl.Float64)
        if was.dtype == pl.Float64:
            off = (was - now).abs().fill_nan(None).fill_null(off)
        worst = off.arg_max()
        yield {
            "column": name,
            "greatest": 0.0 if worst is None else off[worst],
            "tolerance": VECTOR_TOLERANCE if name == "vector" else 0.0,
            "trace_id": stored.item(worst, "trace_id")
            if worst is not None and off[worst]
            else None,
        }
