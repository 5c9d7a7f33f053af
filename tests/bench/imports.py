"""Importing spans beside DuckDB, which only brings those of a trace together, and looks at none."""

import tempfile
import time
from pathlib import Path

import duckdb

from tests.bench.measuring import measured
from tests.support.formats.shuffled_spans import RULES, SPANS, write_spans

TRACES, FILES = 100_000, 8


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        bench_imports(Path(folder))


def bench_imports(folder: Path) -> None:
    write_spans(folder / "spans", traces=TRACES, files=FILES)
    spans = TRACES * SPANS
    print(f"{spans:,} spans of {TRACES:,} traces, in any order over {FILES} files")
    command = ("import", "otlp", str(folder / "spans"), "-o", str(folder / "archive"), *RULES)
    for what in ("importing", "importing again, nothing new"):
        done = measured(command)
        assert done.status == 0, done.tail
        rate = f"{spans / done.seconds:>12,.0f} spans/s"
        print(f"  {what:<36}{rate}{done.seconds:>9.1f} s{done.peak_mb:>9,.0f} MB")
    began = time.monotonic()
    brought_together(folder / "spans", folder / "together.parquet")
    seconds = time.monotonic() - began
    print(f"  {'DuckDB, brought together':<36}{spans / seconds:>12,.0f} spans/s{seconds:>9.1f} s")


def brought_together(spans: Path, out: Path) -> None:
    query = f"""
        SELECT span->>'traceId' AS trace, list(span ORDER BY span->>'startTimeUnixNano') AS spans
        FROM (
            SELECT json->'$.resourceSpans[0].scopeSpans[0].spans[0]' AS span
            FROM read_json_objects('{spans}/*.jsonl', format = 'newline_delimited')
        )
        GROUP BY ALL
        ORDER BY ALL
    """
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")


if __name__ == "__main__":
    main()
