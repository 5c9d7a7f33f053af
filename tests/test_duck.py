"""What DuckDB takes of the memory that there is."""

from pathlib import Path

import duckdb
import pytest

import kp_batch.duck
from kp_batch.duck import available_bytes, duckdb_config, duckdb_limit

GIB = 1 << 30


def test_the_memory_is_what_duckdb_finds_and_no_more_than_the_machine_has() -> None:
    meminfo = Path("/proc/meminfo").read_text("utf-8")
    [machine] = [int(line.split()[1]) << 10 for line in meminfo.splitlines() if "MemTotal" in line]
    assert 64 << 20 < available_bytes() < 1.1 * machine


@pytest.mark.parametrize(
    ("there_is", "most", "scores", "limit"),
    [
        (64 * GIB, GIB, 0, GIB),
        (2 * GIB, GIB, 0, GIB // 2),
        (64 * GIB, GIB // 2, 0, GIB // 2),
        (64 * GIB, GIB, 1_000_000, GIB),
        (64 * GIB, GIB, 100_000_000, 3_600_000_000),
        (2 * GIB, GIB, 100_000_000, GIB),
    ],
)
def test_the_limit_follows_the_machine_and_what_cannot_be_spilled(
    monkeypatch: pytest.MonkeyPatch, there_is: int, most: int, scores: int, limit: int
) -> None:
    monkeypatch.setattr(kp_batch.duck, "available_bytes", lambda: there_is)
    assert duckdb_limit(most, scores) == limit


@pytest.mark.telling
@pytest.mark.slow
def test_what_does_not_fit_is_kept_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.duck, "available_bytes", lambda: 256 << 20)
    with duckdb.connect(config=duckdb_config(tmp_path / "spill")) as connection:
        connection.execute("CREATE TABLE held AS SELECT md5(n::VARCHAR) FROM range(3000000) t(n)")
        assert list((tmp_path / "spill").iterdir())
        assert connection.sql("SELECT count(*) FROM held").fetchall() == [(3_000_000,)]
