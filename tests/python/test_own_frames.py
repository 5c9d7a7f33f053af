"""A caller's frames in SQL, and the vectors of traces as a frame."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import kp_batch as kp
from kp_batch.embedding.encoders import Hashing
from kp_batch.errors import KpBatchError, WarehouseError
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.read.errors import fails_with

OBJECTIVES = ("fix the import", "read the contract", "fix the import", "!", "read")


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> kp.Warehouse:
    folder = tmp_path_factory.mktemp("frames")
    rows = [
        trace(id=str(n), objective=text, steps=[step("thought", "")])
        for n, text in enumerate(OBJECTIVES)
    ]
    write_jsonl(folder / "a.jsonl", rows)
    made = kp.Warehouse(folder / "warehouse")
    made.run(folder / "a.jsonl", embedder="hashing")
    return made


LABELS = pl.DataFrame({"trace_id": ["1", "3", "3", "other"], "label": [1.0, None, 0.5, 1.0]})


@pytest.mark.parametrize("given", [LABELS, LABELS.lazy(), LABELS.to_arrow()])
def test_a_frame_is_joined_under_its_name(wh: kp.Warehouse, given: Any) -> None:
    query = "SELECT trace_id, label, score FROM scores JOIN Labels USING (trace_id)"
    found = wh.sql(f"{query} ORDER BY ALL", labels=given)
    scores = wh.scores().select("trace_id", "score").collect()
    wanted = LABELS.join(scores, on="trace_id").sort("trace_id", "label", nulls_last=True)
    assert found.rows() == wanted.rows()


def test_several_frames_also_of_an_earlier_run(wh: kp.Warehouse) -> None:
    query = "SELECT count(*) FROM scores, a, b"
    counted = wh.sql(query, as_of="latest", a=LABELS, b=LABELS.head(2))
    assert counted.item() == len(OBJECTIVES) * 4 * 2


def test_a_frame_hides_no_view_and_is_a_frame(wh: kp.Warehouse) -> None:
    for name in ("scores", "Rejects", "part_effects"):
        with pytest.raises(
            KpBatchError, match=f"{name} is a view of the warehouse; give the frame"
        ):
            wh.sql("SELECT 1", **{name: LABELS})
    for value in ([1], {"a": 1}, "text", None):
        with pytest.raises(KpBatchError, match=r"labels is of type .*; give a frame of polars"):
            wh.sql("SELECT 1", labels=value)


def test_vectors_are_those_of_the_texts(wh: kp.Warehouse) -> None:
    vectors = wh.vectors()
    assert vectors["trace_id"].to_list() == [str(n) for n in range(len(OBJECTIVES))]
    expected = Hashing().encode([f"{text} " for text in OBJECTIVES])
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    expected = np.divide(expected, norms, out=np.zeros_like(expected), where=norms > 0)
    np.testing.assert_allclose(vectors["vector"].to_numpy(), expected, atol=1e-7)
    assert set(vectors["encoder_id"]) == {Hashing.encoder_id}


def test_vectors_come_in_the_order_of_the_ids(wh: kp.Warehouse) -> None:
    every = {row["trace_id"]: row for row in wh.vectors().iter_rows(named=True)}
    for ids in (["4", "0", "4"], pl.Series(["2"]), iter(["1"]), []):
        wanted = [*ids] if not hasattr(ids, "__next__") else ["1"]
        assert wh.vectors(ids).to_dicts() == [every[name] for name in wanted]


def test_vectors_that_are_not_there_are_named(wh: kp.Warehouse, tmp_path: Path) -> None:
    with pytest.raises(KpBatchError, match="no score for 2 ids, such as nobody; give only"):
        wh.vectors(["1", "nobody", "none"])
    write_jsonl(tmp_path / "a.jsonl", [trace()])
    plain = kp.Warehouse(tmp_path / "plain")
    plain.run(tmp_path / "a.jsonl", embedder="none")
    with fails_with(KpBatchError, "no_encoder"):
        plain.vectors()
    lost = kp.Warehouse(tmp_path / "lost")
    lost.run(tmp_path / "a.jsonl", embedder="hashing")
    for path in (tmp_path / "lost" / "vectors").rglob("*.npy"):
        path.unlink()
    with fails_with(WarehouseError, "missing_vectors"):
        lost.vectors()
