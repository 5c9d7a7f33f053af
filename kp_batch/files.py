"""Files that appear whole or not at all, folders without links, and a cache for the user.

The cache is in `$XDG_CACHE_HOME/kp-batch`, by default below `~/.cache`, and belongs to no
warehouse. Losing it costs only time, so that a failure to read or write it is no error. Where
several processes write a file at once, the last one wins.
"""

import errno
import os
import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from shutil import rmtree
from stat import S_ISDIR, S_ISREG
from typing import Any
from uuid import uuid4

from kp_batch.errors import WRITTEN_FOLDERS, KpBatchError, WarehouseError
from kp_batch.stopping import parts_in_threads, result_of
from kp_batch.text import one_line, printable

PROJECT_FILE = "kp_batch.toml"  # in the current folder, unless another one is named
NO_FILE = "it is a pipe, a socket or a device, and no file"
NAMED_PIPE = "it is a pipe, which may wait for ever; name a file, or <(command)"
HALF_WRITTEN = ".part"  # the ending of a file that is not whole yet
_NOTES: list[int] = []  # descriptors, at most one: see `note_leftovers_in`
_SYNCED_AT_ONCE = 16  # a disk brings what waits together down at once
_NO_SYNC_OF_FOLDERS = (errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def temporary_sibling(path: Path) -> Path:
    """A unique name for a file until it is whole: another worker may be writing the same file.

    It begins with neither a dot nor an underscore unless the path does: Delta's vacuum would pass
    over such a file, which a killed worker left.
    """
    partial = path.with_name(f"{path.name}.{uuid4().hex}{HALF_WRITTEN}")
    WRITTEN_FOLDERS.add(path.parent)
    note_leftover(partial)
    return partial


def open_regular(path: Path | str) -> BufferedReader:
    """Open a file for reading bytes; a pipe or a device is none, and is not waited for.

    Raises:
        OSError: it cannot be opened.
    """
    kind = os.stat(path).st_mode  # noqa: PTH116 (a path or a text)
    if not (S_ISREG(kind) or S_ISDIR(kind)):
        raise OSError(errno.EINVAL, NO_FILE, str(path))
    return Path(path).open("rb")


def is_named_pipe(path: Path | str) -> bool:
    """Whether it is a pipe in a folder, which nobody may ever write to, unlike `<(command)`."""
    is_pipe = Path(path).is_fifo()
    return is_pipe and not os.path.realpath(path).startswith(("/proc/", "/dev/fd/"))


def read_named(path: Path | str) -> str:
    """The text of a file that a user names; a pipe in a folder is refused, and not waited for.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not UTF-8; see `decoded`.
    """
    if is_named_pipe(path):
        raise OSError(errno.EINVAL, NAMED_PIPE, str(path))
    return decoded(Path(path).read_bytes())


def decoded(content: bytes) -> str:
    """The text of a file in UTF-8, without the byte order mark that editors on Windows write.

    Raises:
        ValueError: it is not UTF-8; the message says what to do.
    """
    if content[:2] in {BOM_UTF16_LE, BOM_UTF16_BE} or b"\0" in content[:2]:
        raise ValueError("it is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1:,} is not UTF-8; save it as UTF-8") from error


def read_toml(
    path: Path | str, what: str, failure: Callable[[str], KpBatchError]
) -> tuple[str, dict[str, Any]]:
    """The text of a TOML file that a user names, and its tables.

    Args:
        path: the file.
        what: it is, for the message, such as `the audits file`.
        failure: makes an error of a message.

    Raises:
        KpBatchError: that error: it is missing, unreadable, not UTF-8, or no TOML.
    """
    try:
        text = read_named(path)
        return text, tomllib.loads(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or one_line(str(error))
        remedy = "; mend that place" if isinstance(error, tomllib.TOMLDecodeError) else ""
        message = f"{what} {printable(str(path))} cannot be read: {reason}{remedy}"
        raise failure(message) from error


@contextmanager
def atomic_write(path: Path, *, durable: bool = False) -> Generator[Path]:
    """Yield the name to write a file under, which takes the path's place at the end.

    It is removed where anything is raised. Where nothing was written the path stays as it is.

    Args:
        path: the file.
        durable: whether to wait until its content is on the disk, so that a machine that fails
            leaves the old file or this one, and never an empty one; `sync_names` does the rest.
    """
    partial = temporary_sibling(path)
    try:
        yield partial
        if partial.exists():
            if durable:
                sync(partial)
            partial.replace(path)
    except BaseException:  # a signal, or a panic in Rust, is no Exception
        with suppress(OSError):  # of a full disk, say: the first error is the one that counts
            partial.unlink(missing_ok=True)
        raise


def note_leftovers_in(notes: Path) -> None:
    """List in a file what this process would leave if it were killed; see `note_leftover`."""
    _NOTES.append(os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))


def note_leftover(path: Path) -> None:
    """Note a file or folder that this process will remove, and whose name no other process uses."""
    for notes in _NOTES:
        with suppress(OSError):  # that disk may be full
            os.write(notes, os.fsencode(path.absolute()) + b"\0")


def remove_leftovers(notes: Path) -> None:
    """Remove the files and folders that a process has noted."""
    with suppress(OSError):
        for name in notes.read_bytes().split(b"\0")[:-1]:
            path = Path(os.fsdecode(name))
            if path.is_dir() and not path.is_symlink():
                rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()


def sync(path: Path) -> None:
    """Wait until the content of a path is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_names(folder: Path) -> None:
    """Wait until a folder's names are on the disk, where its file system supports that.

    Raises:
        OSError: they could not be written.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except (PermissionError, IsADirectoryError):  # as some systems answer
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC_OF_FOLDERS:
            raise
    finally:
        os.close(descriptor)


def make_durable_folder(path: Path) -> None:
    """Make a folder with its parents, where it is missing, and wait until it is on the disk.

    Raises:
        OSError: it cannot be made.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        sync_names(folder.parent)


def sync_new(files: Collection[Path], known: Iterable[Path], root: Path) -> None:
    """Wait until new files are on the disk, and the names of them and of their new folders.

    Not by `syncfs`: in FUSE it does nothing, and elsewhere it waits for what others have written,
    and fails where that could not be.

    Args:
        files: the new ones, below the root.
        known: files below the root that are on the disk already, so that their folders are.
        root: a folder whose own name is on the disk.

    Raises:
        OSError: one could not be written.
    """
    old = {folder for file in known for folder in file.parents}
    folders: set[Path] = set()
    for file in files:
        for folder in file.parents:
            folders.add(folder)
            if folder in old or folder == root:
                break
    with parts_in_threads(_SYNCED_AT_ONCE) as threads:
        for synced in [threads.begin(sync, path) for path in files]:
            result_of(synced)
        for synced in [threads.begin(sync_names, path) for path in folders]:
            result_of(synced)


def files_below(folder: Path) -> list[Path]:
    """All files in a folder of a warehouse, at any depth, in order; none where it is missing.

    Raises:
        WarehouseError: it is a link, or holds one: the link's target is not the warehouse's.
    """
    return sorted(map(Path, _below(folder)))


def refuse_links_below(folder: Path) -> None:
    """Refuse a link in a folder of a warehouse, at any depth.

    Raises:
        WarehouseError: it is a link, or holds one.
    """
    for _ in _below(folder):
        pass


def _below(folder: Path) -> Iterator[str]:
    """The files in a folder, in any order; see `files_below`: paths of all take longer to make."""
    refuse_link(folder)
    folders = [str(folder)]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except (FileNotFoundError, NotADirectoryError):
            continue
        with entries:
            for entry in entries:
                if entry.is_symlink():
                    refuse_link(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry.path


def refuse_link(path: Path) -> None:
    """Refuse a link where a writer works.

    Raises:
        WarehouseError: the path is one.
    """
    if path.is_symlink():
        raise WarehouseError(
            f"{path} is a symbolic link: files behind it could be changed or removed; replace it "
            "with what it points to (only the warehouse itself may be a link)"
        )


def read_cache(name: str) -> str | None:
    """Read a file of the user's cache; None if it is missing, or no text."""
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home
        return (cache_folder() / name).read_text("utf-8")
    return None


def write_cache(name: str, text: str) -> None:
    """Write a file of the user's cache, in place of the one of that name."""
    with suppress(OSError, RuntimeError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / name) as partial:
            partial.write_text(text, "utf-8")


def cache_folder() -> Path:
    """The folder of the user's cache; it may be missing."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kp-batch"
