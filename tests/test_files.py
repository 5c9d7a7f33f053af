import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from polars.exceptions import PanicException

from kp_batch.cli.options import NamedFile
from kp_batch.config import RescoreConfig
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import KpBatchError
from kp_batch.files import (
    NAMED_PIPE,
    NO_FILE,
    atomic_write,
    cache_folder,
    open_regular,
    read_cache,
    read_named,
    write_cache,
)
from kp_batch.project import load_project
from kp_batch.scoring.profiles import load_profiles
from kp_batch.warehouse.audits import load_audits
from tests.support.processes.commands import invoke


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


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.timeout(10)
def test_what_is_no_file_is_not_waited_for(pipe: Path) -> None:
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(OSError, match=NO_FILE):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(pipe.parent)
    (pipe.parent / "file").write_bytes(b"abc")
    with open_regular(pipe.parent / "file") as file:
        assert file.read() == b"abc"


@pytest.mark.timeout(10)
def test_a_pipe_in_a_folder_is_refused_where_a_user_names_it(pipe: Path) -> None:
    settings = {"archive": ["a"], "warehouse": "w"}
    for read in (
        lambda: RescoreConfig.read({**settings, "profiles": pipe}),
        lambda: RescoreConfig.read({**settings, "audits": pipe}),
        lambda: load_project(pipe),
        lambda: load_rules(pipe, {}),
    ):
        with pytest.raises(KpBatchError, match=f"cannot be read: {re.escape(NAMED_PIPE)}"):
            read()
    done = invoke("score", pipe)
    assert (done.returncode, NAMED_PIPE in done.stderr) == (2, True)


WEIGHTS = "\n".join(
    f"{name} = 0.25" for name in ("complexity", "novelty", "tool_diversity", "outcome_confidence")
)
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "project": ("warehouse = 'w'", load_project),
    "profiles": (f"[profiles.legal]\n{WEIGHTS}", load_profiles),
    "audits": ("[audits.a]\nsql = 'SELECT 1'", load_audits),
    "rules": ("[success]\nscore = 'right'\nat_least = 1", lambda path: load_rules(path, {})),
}


@pytest.mark.parametrize("kind", READERS)
def test_each_file_of_toml_may_begin_with_a_byte_order_mark_and_is_utf_8(
    tmp_path: Path, kind: str
) -> None:
    (text, read), file = READERS[kind], tmp_path / "a.toml"
    file.write_text(f"{text}\n", "utf-8-sig")
    read(file)
    for content, reason in (
        (text.encode("utf-16"), "it is UTF-16; save it as UTF-8"),
        (text.encode("utf-16-le"), "it is UTF-16; save it as UTF-8"),
        (b"# \xfc\n", "byte 3 is not UTF-8; save it as UTF-8"),
        (b"\na b", r"Expected .* \(at line 2, column 3\); fix that place"),
    ):
        file.write_bytes(content)
        with pytest.raises(KpBatchError, match=f"the {kind} file {file} cannot be read: {reason}$"):
            read(file)


def test_the_pipe_of_a_command_is_read() -> None:
    def read_as_option(path: str) -> str:
        with NamedFile("r").convert(path, None, None) as file:
            return file.read()

    for read in (read_named, read_as_option):
        reading, writing = os.pipe()
        os.write(writing, b"abc")
        os.close(writing)
        assert read(f"/dev/fd/{reading}") == "abc"
        os.close(reading)
