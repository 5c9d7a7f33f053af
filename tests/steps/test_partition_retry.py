"""Parts of a step: what a killed worker began is done again by another, to the same bytes."""

import pickle
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Concatenate

import numpy as np
import pytest

import kp_batch.archive.reading
import kp_batch.ingest.scan
import kp_batch.pipeline.embed
import kp_batch.planning.timeline
import kp_batch.planning.write_tasks
from kp_batch.embedding.encoders import Hashing
from kp_batch.embedding.minilm import MiniLM
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.steps.step import P, R, Step, T, ThreadExecutor, cut
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.make.sample import write_sample
from tests.support.oracle.tables import tables

pytestmark = pytest.mark.slow


class Dying(ThreadExecutor):
    """Does each part twice: first by a worker that dies and leaves half of every file it wrote.

    Parts, arguments and results are pickled in between, as if the workers were other processes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: dict[str, int] = {}  # by the step's name

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Sequence[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[R]:
        for part in parts:
            before = self.files()
            result = step(part, *args, **kwargs)
            written = {
                path: content
                for path, content in self.files().items()
                if before.get(path) != content
            }
            for path, content in written.items():
                path.write_bytes(content[: len(content) // 2])
            again = pickle.dumps((step, part, args, kwargs))
            same, *positional, named = pickle.loads(again)
            np.testing.assert_equal(same(positional[0], *positional[1], **named), result)
            assert {path: path.read_bytes() for path in written} == written
            self.parts[step.name] = self.parts.get(step.name, 0) + 1
            yield pickle.loads(pickle.dumps(result))

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kp_batch.archive.reading, "BATCH_ROWS", 30)
    monkeypatch.setattr(kp_batch.ingest.scan, "MAX_PART_BYTES", 200_000)
    monkeypatch.setattr(kp_batch.planning.timeline, "RANGE_ROWS", 50)
    monkeypatch.setattr(kp_batch.planning.write_tasks, "PART_ROWS", 40)
    monkeypatch.setattr(Hashing, "chunk_size", 20)


@pytest.mark.usefixtures("small_parts")
def test_a_part_that_a_killed_worker_began_is_done_by_another(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    write_sample(archive, traces=150, days=6, seed=5, dirty=0.05)
    whole = config(tmp_path, archive, max_reject_share=1, warehouse=tmp_path / "whole")
    rescore_archive(whole)
    settings = config(tmp_path, archive, max_reject_share=1)
    dying = Dying(settings.warehouse)
    rescore_archive(settings, dying)
    assert tables(settings.warehouse)["scores"].equals(tables(whole.warehouse)["scores"])
    shutil.rmtree(settings.warehouse / "vectors")
    changes = {"cache_size": 7}
    rescore_archive(settings.model_copy(update=changes), dying)
    rescore_archive(whole.model_copy(update=changes))
    assert tables(settings.warehouse)["scores"].equals(tables(whole.warehouse)["scores"])
    names = {"identify", "stage", "read again", "embed texts", "replay span", "write days"}
    assert dying.parts.keys() == names
    assert min(dying.parts.values()) > 1


@pytest.mark.telling
@pytest.mark.model
def test_the_parts_of_texts_that_are_embedded_by_their_windows_are_done_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.pipeline.embed, "TEXTS_PER_PART", 2)
    monkeypatch.setattr(MiniLM, "chunk_size", 1)
    beginning = "many words " * 300
    traces = [trace(id=f"t{n}", objective=beginning + str(n)) for n in range(6)]
    write_jsonl(tmp_path / "a.jsonl", [*traces, trace(id="short")])
    settings = config(tmp_path, tmp_path / "a.jsonl", embedder="minilm")
    dying = Dying(settings.warehouse)
    rescore_archive(settings, dying)
    assert (dying.parts["tokenise"], dying.parts["embed windows"]) == (4, 2)
    novelty = tables(settings.warehouse)["scores"].sort("trace_id").get_column("novelty")
    assert novelty.filter(novelty < 1e-6).len() == 5


def test_parts_are_as_large_as_they_may_be_and_a_larger_item_is_alone() -> None:
    for sizes, parts in (
        ([3, 1, 1, 9, 2, 2, 2], [(3, 1), (1,), (9,), (2, 2), (2,)]),
        ([], []),
        ([5], [(5,)]),
    ):
        assert list(cut(sizes, lambda size: size, 4)) == parts
