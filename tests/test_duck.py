"""What DuckDB takes of the memory that there is, and the instance for a process's small work."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

import kp_batch.duck
from kp_batch.duck import available_bytes, duckdb_config, duckdb_limit, small_work

GIB = 1 << 30


def test_the_memory_is_what_duckdb_finds_and_no_more_than_the_machine_has() -> None:
    meminfo = Path("/proc/meminfo").read_text("utf-8")
    [machine] = [int(line.split()[1]) << 10 for line in meminfo.splitlines() if "MemTotal" in line]
    assert 64 << 20 < available_bytes() < 1.1 * machine


@pytest.mark.parametrize(
    ("there_is", "scores", "limit"),
    [
        (64 * GIB, 0, GIB),
        (2 * GIB, 0, GIB // 2),
        (64 * GIB, 1_000_000, GIB),
        (64 * GIB, 100_000_000, 3_600_000_000),
        (2 * GIB, 100_000_000, GIB),
    ],
)
def test_the_limit_follows_the_machine_and_what_cannot_be_spilled(
    monkeypatch: pytest.MonkeyPatch, there_is: int, scores: int, limit: int
) -> None:
    monkeypatch.setattr(kp_batch.duck, "available_bytes", lambda: there_is)
    assert duckdb_limit(scores) == limit


@pytest.mark.telling
@pytest.mark.slow
def test_what_does_not_fit_is_kept_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.duck, "available_bytes", lambda: 256 << 20)
    with duckdb.connect(config=duckdb_config(tmp_path / "spill")) as connection:
        connection.execute("CREATE TABLE hashes AS SELECT md5(n::VARCHAR) FROM range(3000000) t(n)")
        assert list((tmp_path / "spill").iterdir())
        assert connection.sql("SELECT count(*) FROM hashes").fetchall() == [(3_000_000,)]


def test_no_more_threads_hold_memory_on_a_machine_of_more_cores(tmp_path: Path) -> None:
    with duckdb.connect(config=duckdb_config(tmp_path / "spill")) as connection:
        threads = connection.sql("SELECT current_setting('threads')").fetchall()
    assert duckdb_config(tmp_path)["threads"] == 2
    assert threads == [(2,)]


def marked(value: str) -> str:
    """Mark the instance for small work; returns the mark that it had."""
    with small_work() as connection:
        [(before,)] = connection.execute(
            "SELECT current_setting('max_temp_directory_size')"
        ).fetchall()
        connection.execute(f"SET max_temp_directory_size = '{value}'")
    return before


def test_small_work_has_one_instance_until_an_error(tmp_path: Path) -> None:
    unmarked = marked("1.0 GiB")
    assert marked("2.0 GiB") == "1.0 GiB"
    with pytest.raises(duckdb.ConversionException), small_work() as connection:
        connection.execute(f"ATTACH '{tmp_path}/kp.duckdb' AS kp; SELECT 'x'::INTEGER")
    assert marked("3.0 GiB") == unmarked
    with small_work() as connection:  # what the failing work had attached is closed
        connection.execute(f"ATTACH '{tmp_path}/kp.duckdb' AS kp; DETACH kp")


def test_small_work_of_threads_takes_turns() -> None:
    def attach(number: int) -> int:
        with small_work() as connection:
            connection.execute("ATTACH ':memory:' AS kp")
            connection.execute(f"CREATE TABLE kp.t AS SELECT {number} AS n")
            [(found,)] = connection.execute("FROM kp.t").fetchall()
            connection.execute("DETACH kp")
            return found

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(attach, range(40))) == list(range(40))
