"""A model of few words, and traces of several encoders, which no run leaves."""

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from kp_batch.warehouse.snapshot import published

# A bag of words: a model that is loaded in a moment.
_BAG_OF_WORDS = {
    "modules.json": [
        {
            "idx": 0,
            "name": "0",
            "path": "0_BoW",
            "type": "sentence_transformers.sentence_transformer.modules.bow.BoW",
        }
    ],
    "config_sentence_transformers.json": {"model_type": "SentenceTransformer"},
    "0_BoW/config.json": {"vocab": ["fix", "import", "export", "sum", "rows"]},
}


def set_encoder(warehouse: Path, trace_ids: Sequence[str], encoder_id: str) -> None:
    """Change behind its back by which encoder some of the published traces were scored."""
    snapshot = published(warehouse)
    changed = pl.when(pl.col("trace_id").is_in(trace_ids)).then(pl.lit(encoder_id))
    numbers: dict[str, int] = {}
    for path in snapshot.files("scores"):
        rows = pl.read_parquet(path, glob=False, hive_partitioning=False)
        rows = rows.with_columns(encoder_id=changed.otherwise("encoder_id"))
        rows.write_parquet(path)
        for name, count in rows.group_by("encoder_id").len().iter_rows():
            numbers[name] = numbers.get(name, 0) + count
    first_of_most = dict(sorted(numbers.items(), key=lambda item: -item[1]))
    told = json.dumps({"encoder_id": first_of_most, "cache_id": {}, "profile_id": {}})
    for path in snapshot.files("runs"):
        pl.read_parquet(path, glob=False).with_columns(fingerprints=pl.lit(told)).write_parquet(
            path
        )


def write_bag_of_words(folder: Path) -> None:
    """Write a model that is loaded in a moment, and knows five words."""
    for name, content in _BAG_OF_WORDS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
