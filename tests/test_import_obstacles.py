"""What stands in an import's way: disks that fail, folders that may not be read, odd names."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kp_batch.errors import ResourceError
from kp_batch.importers import work
from kp_batch.importers.new_traces import NewTraces
from kp_batch.importers.records import Records
from tests.importing import imported, kp_trace, refusals, write_json
from tests.test_importing import import_all, import_spans, span, write_lines

# Of a disk that fails for a moment, of one that is full, and of one that nobody may write to.
DISKS = [errno.EIO, errno.ENOSPC, errno.EROFS]


def files(folder: Path) -> dict[str, bytes]:
    """What stands in a folder, but for the lock."""
    found = (each for each in folder.rglob("*") if each.is_file() and each.name != "kp.lock")
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for day, name in enumerate("abc", 1):
        write_json(tmp_path / "source" / f"{name}.json", kp_trace(name, day))
    return tmp_path / "source"


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    write_lines(tmp_path / "nights" / "1.jsonl", [span("a", 1), span("b", 2)])
    write_lines(tmp_path / "nights" / "2.jsonl", [span("b", 3), span("c", 4)])
    return tmp_path / "nights"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("where", [NewTraces, Records])  # of traces that are made; of all
@pytest.mark.parametrize("number", DISKS, ids=errno.errorcode.get)
def test_a_scratch_disk_that_fails_is_no_fault_of_a_trace(
    source: Path,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: type,
    number: int,
) -> None:
    import_all(source, archive)
    before = files(archive)
    for name in "abc":
        write_json(source / f"{name}.json", kp_trace(name, 4))
    with monkeypatch.context() as patch:
        patch.setattr(where, "add", failing(number))
        with pytest.raises(OSError, match=os.strerror(number)):
            import_all(source, archive)
    assert {x: each for x, each in files(archive).items() if "_import" not in x} == {
        x: each for x, each in before.items() if "_import" not in x
    }
    import_all(source, archive)
    assert len(imported(archive)) == 3
    assert refusals(archive) == []


def test_a_lack_of_memory_is_no_fault_of_a_file(
    nights: Path,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def out_of_memory(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr("tests.test_importing.read_json_lines", out_of_memory)
    with pytest.raises(ResourceError, match=r"memory ran out while .*1\.jsonl was read"):
        import_spans(nights, archive)


def test_a_lack_of_memory_is_no_fault_of_a_trace(
    source: Path,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def out_of_memory(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr(work, "decided", out_of_memory)
    with pytest.raises(ResourceError, match=r"memory ran out while kp:trace:a of .*a\.json"):
        import_all(source, archive)
