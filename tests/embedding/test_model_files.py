import hashlib
import json
import os
import threading
from io import BufferedReader
from pathlib import Path

import pytest

from kp_batch.embedding import model_files
from kp_batch.embedding.encoders import AnyModel
from kp_batch.embedding.model_files import _digests_of, file_digests

LONG_AGO = 1_767_600_000_000_000_000


def write(path: Path, content: bytes, mtime_ns: int = LONG_AGO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kp-batch" / "model-digests.json"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are opened to be hashed."""
    names: list[str] = []
    plain = hashlib.file_digest

    def noted(file: BufferedReader, algorithm: str) -> object:
        names.append(Path(file.name).name)
        return plain(file, algorithm)

    monkeypatch.setattr(hashlib, "file_digest", noted)
    return names


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    write(folder / "modules.json", b"[]")
    write(folder / "1_Pooling" / "config.json", b"{}")
    write(folder / "README.md", b"not loaded")
    return folder


def test_an_unchanged_model_is_hashed_once(model: Path, hashed: list[str]) -> None:
    first, encoder_id = file_digests(model), AnyModel(str(model)).encoder_id
    assert first == {"1_Pooling/config.json": digest(b"{}"), "modules.json": digest(b"[]")}
    assert hashed == ["config.json", "modules.json"]
    assert file_digests(model) == first
    assert AnyModel(str(model)).encoder_id == encoder_id
    assert hashed == ["config.json", "modules.json"]


def test_only_a_file_that_is_new_is_hashed(model: Path, hashed: list[str]) -> None:
    file_digests(model)
    write(model / "vocab.txt", b"a")
    assert file_digests(model)["vocab.txt"] == digest(b"a")
    assert hashed == ["config.json", "modules.json", "vocab.txt"]


@pytest.mark.parametrize(
    "name", [".DS_Store", ".gitattributes", "1_Pooling/.DS_Store", ".cache/huggingface/a.metadata"]
)
def test_hidden_files_do_not_make_another_model(tmp_path: Path, model: Path, name: str) -> None:
    before, encoder_id = file_digests(model), AnyModel(str(model)).encoder_id
    write(model / name, b"of today")
    assert file_digests(model) == before
    assert AnyModel(str(model)).encoder_id == encoder_id
    hidden = model.rename(tmp_path / ".models")  # the folder's own path says nothing
    assert AnyModel(str(hidden)).encoder_id == encoder_id


@pytest.mark.parametrize(
    ("content", "mtime_ns"),
    [(b"two more", LONG_AGO), (b"two", LONG_AGO + 1), (b"two", LONG_AGO - 1), (b"two", LONG_AGO)],
    ids=["size", "later", "earlier", "content alone"],
)
def test_a_changed_file_is_hashed_again(tmp_path: Path, content: bytes, mtime_ns: int) -> None:
    path = write(tmp_path / "weights", b"one")
    assert _digests_of({"weights": path}) == {"weights": digest(b"one")}
    changed_ns = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == changed_ns:  # until the file system's clock has moved on
        write(path, content, mtime_ns)
    assert _digests_of({"weights": path}) == {"weights": digest(content)}


def test_a_link_that_leads_elsewhere_is_hashed_again(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", b"one"), write(tmp_path / "two", b"two")
    link = tmp_path / "weights"
    for target, content in ((one, b"one"), (two, b"two")):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert _digests_of({"weights": link}) == {"weights": digest(content)}


@pytest.mark.parametrize(("age", "times"), [(1_900_000_000, 2), (2_100_000_000, 1), (-1, 2)])
def test_a_digest_is_kept_once_the_file_is_two_seconds_old(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch, age: int, times: int
) -> None:
    monkeypatch.setattr(model_files.time, "time_ns", lambda: LONG_AGO + age)
    path = write(tmp_path / "weights", b"one")
    assert _digests_of({"weights": path}) == _digests_of({"weights": path})
    assert hashed == ["weights"] * times


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"a": 1}', b"[" * 100_000],
    ids=["empty", "cut off", "list", "null", "no text", "numbers", "deep"],
)
def test_a_damaged_cache_is_ignored_and_replaced(
    tmp_path: Path, cache: Path, hashed: list[str], damage: bytes
) -> None:
    path = write(tmp_path / "weights", b"one")
    write(cache, damage)
    for _ in range(2):
        assert _digests_of({"weights": path}) == {"weights": digest(b"one")}
    assert hashed == ["weights"]
    assert list(json.loads(cache.read_text("utf-8")).values()) == [digest(b"one")]


def test_a_cache_entry_that_is_no_text_is_ignored(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "weights", b"one")
    _digests_of({"weights": path})
    write(cache, json.dumps(dict.fromkeys(json.loads(cache.read_text("utf-8")), 1)).encode())
    assert _digests_of({"weights": path}) == {"weights": digest(b"one")}


def test_a_cache_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, hashed: list[str]
) -> None:
    write(tmp_path / "cache", b"a file where the folder would be")
    path = write(tmp_path / "weights", b"one")
    for _ in range(2):
        assert _digests_of({"weights": path}) == {"weights": digest(b"one")}
    assert hashed == ["weights"] * 2


def test_a_user_without_a_home_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", homeless)
    path = write(tmp_path / "weights", b"one")
    assert _digests_of({"weights": path}) == {"weights": digest(b"one")}


@pytest.mark.parametrize("value", [None, ""])
def test_the_cache_folder_is_in_the_home_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    _digests_of({"weights": write(tmp_path / "weights", b"one")})
    assert (tmp_path / ".cache" / "kp-batch" / "model-digests.json").is_file()


def test_writers_at_once_leave_a_whole_cache(tmp_path: Path, cache: Path) -> None:
    paths = [write(tmp_path / f"weights{number}", b"one") for number in range(8)]
    threads = [threading.Thread(target=_digests_of, args=({"w": path},)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = json.loads(cache.read_text("utf-8"))
    assert 1 <= len(kept) <= 8
    assert set(kept.values()) == {digest(b"one")}
    assert list(cache.parent.iterdir()) == [cache]
