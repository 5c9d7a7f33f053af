"""Facts that are removed, and the files that stay as they are."""

from pathlib import Path

import polars as pl
import pytest

from kp_batch.pipeline.vacuum import FactsRewrite, Keep
from kp_batch.schemas import FACTS
from kp_batch.warehouse.data_files import write_data_file
from tests.support.make.publications import Draft


def written(warehouse: Path, **files: str) -> Draft:
    """A table of facts, its files by their names, a letter for each trace."""
    frames = {
        name: pl.concat([FACTS.to_frame(), pl.DataFrame({"trace_id": [*ids]})], how="diagonal")
        for name, ids in files.items()
    }
    tables = Draft(warehouse, "run")
    data_files = [write_data_file(warehouse, "facts", rows, name) for name, rows in frames.items()]
    tables.replace_files("facts", data_files, None)
    tables.publish()
    return tables


def without(*ids: str) -> Keep:
    gone = pl.LazyFrame({"trace_id": ids})
    return lambda rows: rows.join(gone, on="trace_id", how="anti", maintain_order="left")


def rewritten(tables: Draft, keep: Keep, **how: int) -> int:
    """Rewrite; how many facts were removed."""
    rewrite = FactsRewrite.of(tables.snapshot, keep, **how)
    tables.candidate = rewrite.carry_out(tables.candidate)
    return rewrite.removed


def traces_by_file(tables: Draft) -> dict[str, str]:
    """The traces of each file; one that was made just now is named `new`."""
    paths = tables.snapshot.files("facts")
    names = (path.stem if len(path.stem) == 1 else "new" for path in paths)
    return {
        name: "".join(pl.read_parquet(path).get_column("trace_id"))
        for name, path in zip(names, paths, strict=True)
    }


def test_only_the_files_that_lose_rows_are_rewritten(tmp_path: Path) -> None:
    tables = written(tmp_path, a="abc", b="de", c="fgh")
    untouched = (tmp_path / "facts" / "b.parquet").stat()
    assert rewritten(tables, without("b", "g", "z")) == 2
    assert traces_by_file(tables) == {"b": "de", "new": "acfh"}
    assert (tmp_path / "facts" / "b.parquet").stat().st_mtime_ns == untouched.st_mtime_ns
    rows = tables.snapshot.scan("facts").collect()
    assert sorted(rows.get_column("trace_id")) == [*"acdefh"]


@pytest.mark.parametrize(
    ("files", "least", "remaining"),
    [
        ({"a": "abc", "b": "de", "c": "f"}, 3, {"a": "abc", "new": "def"}),
        ({"a": "abc", "b": "de"}, 3, {"a": "abc", "b": "de"}),  # one small file alone
        ({"a": "abc", "b": "de"}, 4, {"new": "abcde"}),
        ({"a": "abc", "b": "xde"}, 3, {"a": "abc", "new": "de"}),
        ({"a": "ax", "b": "de"}, 0, {"b": "de", "new": "a"}),
        ({"a": "x"}, 0, {"new": ""}),
    ],
)
def test_small_files_become_one(
    tmp_path: Path, files: dict[str, str], least: int, remaining: dict[str, str]
) -> None:
    tables = written(tmp_path, **files)
    removed = sum(file.count("x") for file in files.values())
    assert rewritten(tables, without("x"), at_least=least) == removed
    assert traces_by_file(tables) == remaining


def test_with_nothing_to_remove_no_list_is_made(tmp_path: Path) -> None:
    tables = written(tmp_path, a="abc", b="de")
    before = tables.candidate
    assert rewritten(tables, without("z")) == 0
    assert tables.candidate == before
    assert rewritten(Draft(tmp_path / "none"), without("z")) == 0
