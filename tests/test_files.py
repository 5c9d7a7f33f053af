from pathlib import Path

import pytest
from polars.exceptions import PanicException

from kp_batch.files import atomic_write, cache_folder, read_cache, write_cache


def write(path: Path, text: str, error: type[BaseException] | None = None) -> None:
    with atomic_write(path) as written:
        written.write_text(text, "utf-8")
        if error:
            raise error


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_takes_its_place_once_it_is_whole(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", "utf-8")
    with atomic_write(path, durable=durable) as written:
        written.write_text("new", "utf-8")
        assert path.read_text("utf-8") == "old"
    assert path.read_text("utf-8") == "new"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, PanicException])
def test_nothing_is_left_of_a_file_that_is_not_whole(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", "utf-8")
    with pytest.raises(error):
        write(path, "new", error)
    assert path.read_text("utf-8") == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_nothing_is_left_of_a_file_that_cannot_take_its_place(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(tmp_path / "a", "new")
    assert [*tmp_path.iterdir()] == [tmp_path / "a"]


def test_where_nothing_was_written_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", "utf-8")
    with atomic_write(path, durable=True):
        pass
    assert path.read_text("utf-8") == "old"


def test_what_is_kept_for_the_user_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert read_cache("a") is None
    write_cache("a", "text")
    assert read_cache("a") == "text"
    assert [path.name for path in cache_folder().iterdir()] == ["a"]
    monkeypatch.setenv("XDG_CACHE_HOME", __file__)
    write_cache("a", "text")
    assert read_cache("a") is None
