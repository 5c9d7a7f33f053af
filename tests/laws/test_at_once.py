"""Runs at once in one process: each leaves and tells what it does alone."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from kp_batch.config import RescoreConfig
from kp_batch.log import listening
from kp_batch.pipeline.rescore import rescore_and_report
from tests.support.make.archives import trace, write_jsonl
from tests.support.oracle.tables import assert_same

Work = Callable[[], list[str]]

FIRST: dict[str, Any] = {"embedder": "hashing", "cache_size": 5}
SECOND: dict[str, Any] = {"embedder": "hashing", "cache_size": 40, "ttl": "1d", "threshold": 0.5}


def write_archives(folder: Path, traces: int) -> None:
    """Two archives; only that of the second run has traces of the future, of which it warns."""
    for name, future in (("first", "2026-03-01"), ("second", "2999-01-01")):
        rows = [
            trace(
                id=f"kp:trace:{name}-{number}",
                created_at=f"2026-02-{number % 20 + 1:02d}T08:{number % 60:02d}:00Z",
                objective=f"fix number {number * 7919 % 97} of {name}",
            )
            for number in range(traces)
        ]
        last = trace(id=f"kp:trace:{name}-last", created_at=f"{future}T08:00:00Z")
        for part in range(3):
            write_jsonl(folder / name / f"{part}.jsonl", rows[part::3])
        write_jsonl(folder / name / "last.jsonl", [last])


def works(folder: Path, at: str, first: dict[str, Any], second: dict[str, Any]) -> list[Work]:
    """Two runs into warehouses below a folder of that name, which return their warnings."""

    def work(name: str, settings: dict[str, Any]) -> list[str]:
        warehouse = folder / at / name
        config = RescoreConfig(archive=(str(folder / name),), warehouse=warehouse, **settings)
        with listening() as warnings:
            rescore_and_report(config)
        return warnings

    return [lambda: work("first", first), lambda: work("second", second)]


def check(folder: Path, at: str, told: list[list[str]]) -> None:
    """That the runs left what they left one after the other, and told it."""
    assert [len(each) for each in told] == [0, 1]
    assert "traces are dated in the future" in told[1][0]
    for name in ("first", "second"):
        assert_same(folder / "alone" / name, folder / at / name)


async def as_tasks(both: list[Work]) -> list[list[str]]:
    return await asyncio.gather(*map(asyncio.to_thread, both))


async def one_in_the_loop(both: list[Work]) -> list[list[str]]:
    """One in a thread, and one directly in a coroutine, as in a cell."""
    other = asyncio.create_task(asyncio.to_thread(both[1]))
    await asyncio.sleep(0)
    return [both[0](), await other]


def in_threads(both: list[Work]) -> list[list[str]]:
    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(work) for work in both]]


WAYS: dict[str, Callable[[list[Work]], list[list[str]]]] = {
    "in threads": in_threads,
    "as tasks": lambda both: asyncio.run(as_tasks(both)),
    "in a loop": lambda both: asyncio.run(one_in_the_loop(both)),
}


@pytest.mark.slow
def test_runs_at_once_leave_and_tell_what_they_do_one_after_the_other(tmp_path: Path) -> None:
    write_archives(tmp_path, 400)
    before = threadpool_info()
    check(tmp_path, "alone", [work() for work in works(tmp_path, "alone", FIRST, SECOND)])
    for way, do in WAYS.items():
        check(tmp_path, way, do(works(tmp_path, way, FIRST, SECOND)))
    assert [each["num_threads"] for each in threadpool_info()[: len(before)]] == [
        each["num_threads"] for each in before
    ]


@pytest.mark.torture
@pytest.mark.model
def test_a_run_with_the_real_model_and_one_without_do_not_disturb_each_other(
    tmp_path: Path,
) -> None:
    write_archives(tmp_path, 90)
    model = {**FIRST, "embedder": "minilm"}
    check(tmp_path, "alone", [work() for work in works(tmp_path, "alone", model, SECOND)])
    check(tmp_path, "at once", in_threads(works(tmp_path, "at once", model, SECOND)))
    both = works(tmp_path, "with the same model", model, {**SECOND, "embedder": "minilm"})
    one_by_one = works(tmp_path, "one by one", model, {**SECOND, "embedder": "minilm"})
    told = in_threads(both)
    assert told == [work() for work in one_by_one]
    for name in ("first", "second"):
        assert_same(tmp_path / "one by one" / name, tmp_path / "with the same model" / name)
