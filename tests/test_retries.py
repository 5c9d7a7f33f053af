"""A step that the disk interrupts anywhere is done again, and leaves what it would have left."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kp_batch.ingest.observe
import kp_batch.pipeline.embed
import kp_batch.pipeline.publish
import kp_batch.pipeline.replay
import kp_batch.pipeline.write
import kp_batch.planning.plan
from kp_batch import executor
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.warehouse.tables import DeltaTables
from tests.archives import trace, write_jsonl
from tests.test_rescore import ask, config

# What a step does last, or in its midst: it is done, and the disk fails right after it.
MIDST = {
    "read": (kp_batch.ingest.observe, "read_new"),
    "plan": (kp_batch.planning.plan, "stage_rejects"),
    "embed texts": (kp_batch.pipeline.embed, "write_chunk"),
    "replay": (kp_batch.pipeline.replay, "_find_vectors"),
    "replay span": (kp_batch.pipeline.replay, "Replayed"),
    "write days": (kp_batch.pipeline.write, "write_data_file"),
    "write": (DeltaTables, "replace_files"),
    "publish": (kp_batch.pipeline.publish, "publish"),
}
TABLES = {
    "scores": "* EXCLUDE run_id",
    "rejects": "* EXCLUDE run_id",
    "files": "*",
    "profiles": "*",
    "distributions": "* EXCLUDE run_id",
    "runs": "status, reason, counts, inputs, fingerprints",
}


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were slept, which take no time."""
    seconds: list[float] = []
    monkeypatch.setattr(executor.time, "sleep", seconds.append)
    return seconds


def once_torn(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; its first call fails after its work."""
    left = [OSError(errno.EIO, "Input/output error")]

    def torn(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if left:
            raise left.pop()
        return result

    return torn


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("step", MIDST)
def test_a_step_that_failed_in_its_midst_is_done_again_and_leaves_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waited: list[float],
    step: str,
    *,
    published: bool,
) -> None:
    archive = tmp_path / "a.jsonl"
    settings = config(tmp_path, archive, max_reject_share=1)
    usual, torn = (
        settings.model_copy(update={"warehouse": tmp_path / name}) for name in ("usual", "torn")
    )
    traces = [trace(id=str(n), objective=str(n), confidence=n / 9) for n in range(9)]
    if published:
        os.utime(write_jsonl(archive, traces[:5]), (0, 1))
        rescore_archive(usual)
        rescore_archive(torn)
    os.utime(write_jsonl(archive, [*traces, trace(id="refused", steps=[])]), (0, 2))
    rescore_archive(usual)
    where, name = MIDST[step]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, once_torn(getattr(where, name)))
        rescore_archive(torn)
    assert waited == [executor.RETRY_DELAYS_S[0]]
    for table, columns in TABLES.items():
        query = f"SELECT {columns} FROM {table} ORDER BY ALL"
        assert ask(torn, query) == ask(usual, query), table
