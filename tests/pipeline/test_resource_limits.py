"""A replay that would not fit into memory is refused before its texts are embedded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kp_batch.pipeline.replay_spans
from kp_batch.config import RescoreConfig
from kp_batch.errors import ResourceError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.run_summary import Summary
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import require_manifest
from tests.support.make.archives import trace, write_jsonl

pytestmark = pytest.mark.slow

TRACES = 40


@pytest.fixture
def rescore(tmp_path: Path) -> Callable[..., Summary]:
    """Runs over forty traces, with the hashing encoder's 384 dimensions."""
    traces = [trace(id=str(number), objective=f"task {number}") for number in range(TRACES)]
    archive = write_jsonl(tmp_path / "archive.jsonl", traces)
    usual = {"archive": (str(archive),), "warehouse": tmp_path / "warehouse"}

    def run(**changes: Any) -> Summary:
        return rescore_archive(RescoreConfig(**{**usual, "embedder": "hashing", **changes}))

    return run


def there_is(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    monkeypatch.setattr(kp_batch.pipeline.replay_spans, "available_bytes", lambda: memory)


# Two copies of forty vectors.
NEEDED = (512 << 20) + 2 * TRACES * 384 * 4


def test_a_replay_that_fits_into_no_memory_does_not_begin(
    rescore: Callable[..., Summary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_is(monkeypatch, memory=NEEDED - 1)
    with pytest.raises(
        ResourceError, match=r"the vectors of 40 traces need .* 537.0 MB .* a smaller cache"
    ):
        rescore()
    published = require_manifest(tmp_path / "warehouse")
    assert published.failed
    assert set(published.tables) == {"rejects", "runs"}
    assert not Layout(tmp_path / "warehouse").all_vectors.exists()


@pytest.mark.telling
def test_a_replay_that_just_fits_is_carried_out_however_large_the_cache(
    rescore: Callable[..., Summary], monkeypatch: pytest.MonkeyPatch
) -> None:
    there_is(monkeypatch, memory=NEEDED)
    assert rescore(cache_size=10**12).counts.replayed == TRACES


def test_a_replay_of_stored_vectors_is_checked_as_well(
    rescore: Callable[..., Summary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescore()
    first = 2 * 384 * 4  # of the one trace that nobody meets now whose window is another
    there_is(monkeypatch, memory=NEEDED - first - 1)
    with pytest.raises(ResourceError):
        rescore(cache_size=1)
    assert rescore(threshold=0.5).counts.replayed == 0
    [vectors] = Layout(tmp_path / "warehouse").all_vectors.iterdir()
    assert len(list(vectors.glob("*.hashes.npy"))) == 1
