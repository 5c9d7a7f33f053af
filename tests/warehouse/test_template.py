"""What all catalogs have in common is copied where it is kept, and nothing that anybody changed."""

import base64
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kp_batch.duck import small_work
from kp_batch.files import cache_folder
from kp_batch.warehouse.catalog import build_published
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.snapshot import published
from kp_batch.warehouse.template import new_database, template, template_beside
from tests.support.publications import publish_profile

ONE = ["CREATE SCHEMA kp.here", "CREATE MACRO here.answer() AS 1"]
TWO = ["CREATE SCHEMA kp.here", "CREATE MACRO here.answer() AS 2"]
MADE = (
    "SELECT schema_name, function_name, macro_definition, parameters::VARCHAR, comment "
    "FROM duckdb_functions() WHERE database_name = current_database() "
    "UNION ALL SELECT schema_name, view_name, sql, NULL, comment "
    "FROM duckdb_views() WHERE NOT internal "
    "UNION ALL SELECT schema_name, table_name, column_name, data_type, comment "
    "FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "warehouse").mkdir()
    return tmp_path / "warehouse" / "kp.duckdb.new"


def of(path: Path, statements: list[str]) -> tuple[int, bytes]:
    """What a template answers, and its bytes, which differ each time that it is made."""
    with template(path, statements), small_work() as connection:
        [(answer,)] = connection.execute("SELECT template.here.answer()").fetchall()
        content = template_beside(path).read_bytes()
    assert [*path.parent.iterdir()] == []
    return answer, content


def asked(file: Path, query: str = MADE) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(query).fetchall()


def kept_file(cache: Path) -> Path:
    [file] = cache.iterdir()
    return file


def kept_database(cache: Path, folder: Path) -> Path:
    _, content = kept_file(cache).read_text("utf-8").split("\n")
    file = folder / "kept.duckdb"
    file.write_bytes(zlib.decompress(base64.b64decode(content)))
    return file


def test_what_the_same_statements_made_is_copied(path: Path) -> None:
    first = of(path, ONE)
    assert of(path, ONE) == first
    assert first[0] == 1
    other = of(path, TWO)
    assert other[0] == 2
    assert of(path, ONE) == first


def test_another_duckdb_makes_its_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = of(path, ONE)
    monkeypatch.setattr(duckdb, "__version__", "2.99.0")
    assert of(path, ONE) != first


def replaced_by_another(file: Path, folder: Path) -> None:
    """With a macro that answers otherwise, as who may write there would leave it."""
    digest, _ = file.read_text("utf-8").split("\n")
    with new_database(folder / "another") as connection:
        for statement in TWO:
            connection.execute(statement)
    content = base64.b64encode(zlib.compress((folder / "another").read_bytes())).decode()
    file.write_text(f"{digest}\n{content}", "utf-8")


def of_other_statements(file: Path, folder: Path) -> None:
    """Under the same name, as 1 of 256 others is."""
    file.rename(folder / "own")
    with template(folder / "other", TWO):
        pass
    kept_file(file.parent).rename(file)


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "another database": replaced_by_another,
    "of other statements": of_other_statements,
    "cut": lambda file, _: file.write_bytes(file.read_bytes()[:-100]),
    "more": lambda file, _: file.write_bytes(file.read_bytes() + b"AAAA"),
    "a digest only": lambda file, _: file.write_bytes(file.read_bytes()[:64]),
    "empty": lambda file, _: file.write_bytes(b""),
    "zeros": lambda file, _: file.write_bytes(bytes(len(file.read_bytes()))),
    "no text": lambda file, _: file.write_bytes(b"\xff" * 1000),
    "gone": lambda file, _: file.unlink(),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_or_of_others_is_made_anew(
    path: Path, cache: Path, tmp_path: Path, name: str
) -> None:
    _, content = of(path, ONE)
    DAMAGES[name](kept_file(cache), tmp_path)
    anew = of(path, ONE)
    assert anew[0] == 1
    assert anew[1] != content
    assert of(path, ONE) == anew


def test_without_a_cache_it_is_made_each_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", __file__)
    (first, content), (second, other) = of(path, ONE), of(path, ONE)
    assert first == second == 1
    assert content != other


def test_what_fails_leaves_nothing(path: Path, cache: Path) -> None:
    with pytest.raises(duckdb.Error), template(path, [*ONE, "CREATE VIEW v AS FROM missing"]):
        pass
    with pytest.raises(KeyError), template(path, ONE):
        raise KeyError
    assert [*path.parent.iterdir()] == []
    assert len([*cache.iterdir()]) == 1


@pytest.mark.telling
@pytest.mark.slow
def test_a_catalog_from_the_cache_is_as_one_that_was_made_for_it(
    tmp_path: Path, cache: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    publish_profile(warehouse, "one")
    made = asked(warehouse / "kp.duckdb")
    kept = kept_file(cache).stat().st_mtime_ns
    build_published(tmp_path / "again", published(warehouse))
    assert kept_file(cache).stat().st_mtime_ns == kept
    assert asked(tmp_path / "again") == made
    rows = "SELECT manifest, (SELECT name FROM profiles) FROM manifest"
    assert asked(tmp_path / "again", rows) == asked(warehouse / "kp.duckdb", rows)


@pytest.mark.slow
def test_nothing_of_a_publication_is_kept(tmp_path: Path, cache: Path) -> None:
    publish_profile(tmp_path / "warehouse", "one")
    kept = kept_database(cache, tmp_path)
    assert asked(kept, "FROM manifest") == asked(kept, "FROM profiles") == []
    assert "parquet" not in repr(asked(kept)).replace("read_parquet", "")


def but_for_rows(catalog: Path) -> list[tuple[Any, ...]]:
    return [row for row in asked(catalog) if "read_parquet" not in repr(row)]


@pytest.mark.telling
@pytest.mark.slow
def test_what_somebody_does_to_kp_duckdb_is_in_no_later_one(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    catalog = warehouse / "kp.duckdb"
    publish_profile(warehouse, "one")
    made, size = but_for_rows(catalog), catalog.stat().st_size
    with duckdb.connect(str(catalog)) as connection:
        connection.execute("CREATE OR REPLACE MACRO latest() AS 'mine'")
        connection.execute("CREATE TABLE mine AS FROM range(100_000)")
        connection.execute("INSERT INTO manifest FROM manifest")
    assert but_for_rows(catalog) != made
    for name in ("two", "three", "four"):
        publish_profile(warehouse, name)
        assert asked(catalog, "SELECT name, (SELECT count(*) FROM manifest) FROM profiles") == [
            (name, 1)
        ]
        assert but_for_rows(catalog) == made
        assert catalog.stat().st_size == size


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["a file", "a link"])
def test_who_was_killed_meanwhile_leaves_nothing_that_the_next_one_trusts(
    tmp_path: Path, leave: str
) -> None:
    warehouse, elsewhere = tmp_path / "warehouse", tmp_path / "elsewhere"
    publish_profile(warehouse, "zero")
    elsewhere.write_text("mine", "utf-8")
    left = template_beside(warehouse / "kp.duckdb.new")
    for path in (left, left.with_name(f"{left.name}.wal")):
        if leave == "a link":
            path.symlink_to(elsewhere)
        else:
            path.write_text("half", "utf-8")
    with writing(warehouse, wait=False):
        publish_profile(warehouse, "one")
    assert elsewhere.read_text("utf-8") == "mine"
    assert not [*warehouse.glob("*.template*")]
    assert asked(warehouse / "kp.duckdb", "SELECT name FROM profiles") == [("one",)]
