"""What the law compares: the tables that are there, and those of one full run over what counts."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from kp_batch.archive.reject_messages import reject_message
from kp_batch.archive.validation import SUPERSEDED
from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.reader import connect

_QUERIES = {
    "scores": "SELECT * EXCLUDE (run_id) FROM scores ORDER BY trace_id",
    "rejects": 'SELECT * EXCLUDE (run_id) FROM rejects ORDER BY source_file, "row", reasons',
    "profiles": "FROM profiles ORDER BY ALL",
}


def tables(warehouse: Path) -> dict[str, pl.DataFrame]:
    """The published tables, but for who stated their rows."""
    with connect(warehouse) as connection:
        return {
            name: pl.DataFrame(connection.sql(query).to_arrow_table())
            for name, query in _QUERIES.items()
        }


def assert_lawful(config: RescoreConfig, held: Mapping[str, bytes], damaged: set[str]) -> None:
    """The tables are those of a full run, in a new warehouse, over what counts at the same paths.

    Args:
        config: of the run that has just ended; its archive is one folder.
        held: the content that counts, by the file's name in the archive.
        damaged: the names of the files that are unreadable now.
    """
    archive = Path(config.archive[0])
    present = {str(path) for path in archive.rglob("*")} - {str(archive / each) for each in damaged}
    found = tables(config.warehouse)
    expected = _of_a_full_run(config, archive, held)
    told = pl.col("reasons").list.contains("unreadable_file")
    unreadable = found["rejects"].filter(told).get_column("source_file")
    assert unreadable.to_list() == sorted(str(archive / each) for each in damaged)
    found["rejects"] = found["rejects"].filter(~told)
    expected["rejects"] = _without_lost_raw(expected["rejects"], found["rejects"], present)
    for name, wanted in expected.items():
        assert found[name].equals(wanted), f"{name}\n{found[name]}\n{wanted}"


def _of_a_full_run(
    config: RescoreConfig, archive: Path, held: Mapping[str, bytes]
) -> dict[str, pl.DataFrame]:
    aside, warehouse = archive.with_name("aside"), archive.with_name("reference")
    archive.rename(aside)
    try:
        for name, content in held.items():
            (archive / name).parent.mkdir(parents=True, exist_ok=True)
            (archive / name).write_bytes(content)
        rescore_archive(config.model_copy(update={"warehouse": warehouse, "prune": False}))
        return tables(warehouse)
    finally:
        shutil.rmtree(archive)
        shutil.rmtree(warehouse, ignore_errors=True)
        aside.rename(archive)


def _without_lost_raw(wanted: pl.DataFrame, found: pl.DataFrame, present: set[str]) -> pl.DataFrame:
    """The JSON of a row whose file was gone when it came to be refused is not to be had or told."""
    if len(wanted) != len(found):
        return wanted
    is_gone = ~pl.col("source_file").is_in(sorted(present))
    lost = found.select(pl.col("raw").is_null() & is_gone).to_series()
    rows = wanted.select("reasons", "row", "message").iter_rows()
    plain = [
        message if codes == [SUPERSEDED] else reject_message(codes, row, None)
        for codes, row, message in rows
    ]
    return wanted.with_columns(
        raw=pl.when(lost).then(None).otherwise("raw"),
        message=pl.when(lost).then(pl.Series(plain, dtype=pl.String)).otherwise("message"),
    )
