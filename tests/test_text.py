"""What is laid out for a terminal."""

import shutil
from pathlib import Path

import pytest

from kp_batch.errors import WarehouseError
from kp_batch.operations.current_settings import settings_text
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.text import aligned, width
from kp_batch.warehouse.bucket.location import folder_of
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.processes.commands import invoke


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("code", 4), ("médical", 7), ("e\u0301", 1), ("医療診断", 8)]
)
def test_a_wide_character_takes_two_columns_and_a_mark_none(text: str, columns: int) -> None:
    assert width(text) == columns


def test_tables_with_wide_characters_stay_in_line() -> None:
    rows = [{"domain": "医療診断", "trace": "一"}, {"domain": "code", "trace": "22"}]
    assert aligned(rows) == ["  domain    trace", "  医療診断     一", "  code         22"]
    text = settings_text(
        [
            {"name": "weights of 医療", "value": 1, "run_id": "a", "source": "warehouse"},
            {"name": "weights of code", "value": 2, "run_id": None, "source": "default"},
        ]
    )
    assert text.splitlines() == [
        "weights of 医療  1  warehouse  since run a",
        "weights of code  2  default    from the next run on",
    ]


@pytest.mark.parametrize("count", ["0", "-1", "1.5", "many"])
@pytest.mark.parametrize("words", [["verify", "--sample"], ["similar", "a-trace", "-n"]])
def test_what_is_no_count_is_wrong_usage(tmp_path: Path, words: list[str], count: str) -> None:
    done = invoke(*words, count, "--warehouse", tmp_path)
    assert done.returncode == 2
    assert f"{words[-1]}': it must be a whole number from 1 on, got '{count}'" in done.stderr


@pytest.mark.parametrize("cosine", ["0", "1.01", "nan", "-1", "most"])
def test_what_is_no_similarity_is_wrong_usage(tmp_path: Path, cosine: str) -> None:
    done = invoke("redundancy", "--similarity", cosine, "--warehouse", tmp_path)
    assert done.returncode == 2
    assert f"a similarity must be a number above 0, up to 1, got '{cosine}'" in done.stderr


@pytest.mark.telling
@pytest.mark.slow
def test_a_warehouse_in_a_bucket_is_named_by_its_url(tmp_path: Path) -> None:
    own = config(tmp_path, write_jsonl(tmp_path / "a.jsonl", [trace(id="t")]))
    rescore_archive(own)
    copy = Path(folder_of("s3://bucket/scores"))
    shutil.copytree(own.warehouse, copy)
    try:
        with pytest.raises(WarehouseError, match=r"in s3://bucket/scores; see: .* s3://bucket/s"):
            connect(copy, "nonsense").__enter__()
    finally:
        shutil.rmtree(copy)
