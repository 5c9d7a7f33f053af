"""Which texts are embedded together, that they are those of the staged files, and when."""

import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from kp_batch.embedding.minilm import Window
from kp_batch.embedding.windows import window_hash
from kp_batch.errors import EncoderError
from kp_batch.pipeline import embed
from kp_batch.pipeline.embed import rows_at, slices
from kp_batch.steps.step import ThreadExecutor, cut
from kp_batch.vectors import Float32s
from kp_batch.warehouse.staging import Staging
from tests.support.make.slow_model import Sleeping, embed_staged, stage, vector_of

T = TypeVar("T")


@given(st.lists(st.integers(1, 30)), st.integers(1, 40))
def test_law_slices_are_cut_as_parts_are(sizes: list[int], most: int) -> None:
    parts = cut(enumerate(sizes), lambda pair: pair[1], most)
    expected = [(part[0][0], part[-1][0] + 1) for part in parts]
    assert list(slices(np.array(sizes, dtype=np.int64), most)) == expected


@given(st.integers(1, 9), st.sets(st.integers(0, 19), min_size=1))
def test_law_texts_are_read_from_any_row_groups(
    tmp_path_factory: pytest.TempPathFactory, group: int, chosen: set[int]
) -> None:
    path = tmp_path_factory.mktemp("texts") / "texts.parquet"
    texts = pl.DataFrame(
        {
            "text_hash": [f"{row:064x}" for row in range(20)],
            "text": [f"text {row}" for row in range(20)],
            "bytes": [6] * 20,
        }
    )
    texts.write_parquet(path, row_group_size=group)
    rows = np.array(sorted(chosen), dtype=np.int64)
    assert rows_at(path, rows, ["text", "bytes"]).equals(texts[sorted(chosen)].drop("text_hash"))


# --- texts, windows and vectors as one stream


class Seen(ThreadExecutor):
    """Notes the parts of each step, and whether it began a part while another was not done."""

    def __init__(self, *, gpu: bool = False) -> None:
        super().__init__(cores=1, memory=8 << 30)
        object.__setattr__(self, "gpu", gpu)
        object.__setattr__(self, "parts", {})

    def has_gpu(self) -> bool:
        return self.gpu

    def map(self, step: Any, parts: Any, /, *args: Any, **kwargs: Any) -> Any:
        seen = self.parts.setdefault(step.name, [])
        return super().map(step, noted(parts, seen), *args, **kwargs)


def noted(parts: Iterable[T], seen: list[T]) -> Iterator[T]:
    with closing(parts) if isinstance(parts, Generator) else nullcontext():
        for part in parts:
            seen.append(part)
            yield part


TEXTS = [f"{number % 70:04d} {number}" for number in range(100)]  # of which 30 share a window


def assert_embedded(folder: Path, texts: Sequence[str]) -> None:
    """Each window has its own vector, once; each text is paired with its window."""
    vectors: dict[str, bytes] = {}
    for name in folder.glob("*.hashes.npy"):
        hashes = np.load(name)["hash"].astype(str).tolist()
        rows = np.load(str(name).replace("hashes", "vectors"))
        assert not vectors.keys() & set(hashes)
        vectors |= dict(zip(hashes, map(bytes, rows), strict=True))
    windows = {window_hash(window): window for window in Sleeping().windows(texts)}
    assert vectors == {key: bytes(vector_of(window)) for key, window in windows.items()}


@pytest.mark.parametrize(
    ("gpu", "expected"), [(False, [16, 16, 16, 16, 6]), (True, [40, 30])], ids=["cpu", "gpu"]
)
def test_chunks_are_larger_on_a_gpu(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpu: bool,  # noqa: FBT001
    expected: list[int],
) -> None:
    monkeypatch.setattr(embed, "GPU_CHUNK_WINDOWS", 40)
    with Staging.temporary() as staging:
        stage(staging, TEXTS)
        executor = Seen(gpu=gpu)
        assert embed_staged(Sleeping(), staging, tmp_path, executor, at_once=16) == 70
        sizes = [len(chunk.windows) for chunk in executor.parts["embed windows"]]
        assert sizes == expected
        assert_embedded(tmp_path, TEXTS)
        assert embed_staged(Sleeping(), staging, tmp_path, Seen(), at_once=16) == 0


class Meeting(Sleeping):
    """Its model is done with the first chunk once the tokenizer has begun the third part."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.third = 0, Event()

    def windows(self, texts: Sequence[str]) -> list[Window]:
        self.calls += 1
        if self.calls == 3:
            self.third.set()
        return super().windows(texts)

    def encode_windows(self, windows: Sequence[Window]) -> Float32s:
        assert self.third.wait(60)
        return super().encode_windows(windows)


def test_texts_are_tokenised_while_windows_are_embedded(tmp_path: Path) -> None:
    with Staging.temporary() as staging:
        stage(staging, TEXTS)
        assert embed_staged(Meeting(), staging, tmp_path, Seen(), at_once=16) == 70
    assert_embedded(tmp_path, TEXTS)


@pytest.mark.telling
@pytest.mark.slow
def test_a_model_that_fails_ends_the_stream_and_what_was_stored_stays(tmp_path: Path) -> None:
    class Failing(Sleeping):
        def encode_windows(self, windows: Sequence[Window]) -> Float32s:
            if any(vector_of(window).tobytes() == last for window in windows):
                raise EncoderError("NaN")
            return super().encode_windows(windows)

    last = vector_of(Sleeping().windows(["0040"])[0]).tobytes()
    with Staging.temporary() as staging, threadpool_limits(7, "blas"):
        stage(staging, TEXTS)
        with pytest.raises(EncoderError, match="NaN"):
            embed_staged(Failing(), staging, tmp_path, Seen(), at_once=2)
        libraries = [each for each in threadpool_info() if each["user_api"] == "blas"]
        assert {each["num_threads"] for each in libraries} == {7}  # as before
        begun = threading.active_count()
        assert embed_staged(Sleeping(), staging, tmp_path, Seen(), at_once=8) <= 70 - 8
        assert threading.active_count() == begun  # none is left waiting
    assert_embedded(tmp_path, TEXTS)


KILLED = """
import sys
from pathlib import Path
from kp_batch.warehouse.staging import Staging
from kp_batch.steps.step import ThreadExecutor
from tests.pipeline.test_embed import TEXTS
from tests.support.make.slow_model import Sleeping, embed_staged, stage

with Staging.temporary() as staging:
    stage(staging, TEXTS)
    print("begun", flush=True)
    executor = ThreadExecutor(1, 8 << 30)
    embed_staged(Sleeping(0.02, 0.02), staging, Path(sys.argv[1]), executor, at_once=4)
"""


@pytest.mark.telling
@pytest.mark.process
def test_killed_at_any_moment_nothing_that_is_stored_is_wrong(tmp_path: Path) -> None:
    for number, delay in enumerate((0.05, 0.2)):
        folder = tmp_path / f"{number}"
        command = [sys.executable, "-c", KILLED, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.kill()
        before = {path: path.read_bytes() for path in folder.glob("*.npy")}
        with Staging.temporary() as staging:
            stage(staging, TEXTS)
            embed_staged(Sleeping(), staging, folder, ThreadExecutor(), at_once=4)
        assert_embedded(folder, TEXTS)
        assert all(path.read_bytes() == content for path, content in before.items())
