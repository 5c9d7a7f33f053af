"""Files that appear whole or not at all, folders without links, and a cache for the user.

The cache is in `$XDG_CACHE_HOME/kp-batch`, by default below `~/.cache`, and belongs to no
warehouse. Losing it costs only time, so a failure to read or write it is not an error. If several
processes write a file at once, the last one wins.
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

PROJECT_FILE = "kp_batch.toml"  # in the current folder, by default
NO_FILE = "it is a pipe, a socket or a device, not a file"
NAMED_PIPE = "it is a pipe, which may wait for ever; name a file, or <(command)"
# A file that was written this recently may be written again within the same tick of its clock: its
# times prove nothing about its content.
MTIME_MARGIN_NS = 2_000_000_000
HALF_WRITTEN = ".part"  # the ending of a file that is not whole yet
_NOTES: list[int] = []  # descriptors, at most one: see `note_leftovers_in`
_SYNCED_AT_ONCE = 16  # a disk syncs files together that wait together
_NO_SYNC_OF_FOLDERS = (errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def temporary_sibling(path: Path) -> Path:
    """Return a unique name for a file until it is whole; other workers may write the same file.

    It starts with a dot or an underscore only if the path does: Delta's vacuum would skip such a
    file of a killed worker.
    """
    partial = path.with_name(f"{path.name}.{uuid4().hex}{HALF_WRITTEN}")
    WRITTEN_FOLDERS.add(path.parent)
    note_leftover(partial)
    return partial


def open_regular(path: Path | str) -> BufferedReader:
    """Open a file for reading bytes; refuse pipes and devices without waiting for them.

    Raises:
        OSError: the file cannot be opened.
    """
    kind = os.stat(path).st_mode  # noqa: PTH116 (a path or a text)
    if not (S_ISREG(kind) or S_ISDIR(kind)):
        raise OSError(errno.EINVAL, NO_FILE, str(path))
    return Path(path).open("rb")


def is_named_pipe(path: Path | str) -> bool:
    """Whether it is a pipe in a folder, which may never be written to, unlike `<(command)`."""
    is_pipe = Path(path).is_fifo()
    return is_pipe and not os.path.realpath(path).startswith(("/proc/", "/dev/fd/"))


def read_named(path: Path | str) -> str:
    """Return the text of a file that a user names; refuse a pipe in a folder without waiting.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not UTF-8; see `decoded`.
    """
    if is_named_pipe(path):
        raise OSError(errno.EINVAL, NAMED_PIPE, str(path))
    return decoded(Path(path).read_bytes())


def decoded(content: bytes) -> str:
    """Return the text of a UTF-8 file, without the byte order mark of editors on Windows.

    Raises:
        ValueError: the bytes are not UTF-8; the message says what to do.
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
    """Return the text of a TOML file that a user names, and its tables.

    Args:
        path: the file.
        what: the file's role for the message, such as `the audits file`.
        failure: makes an error from a message.

    Raises:
        KpBatchError: the error of `failure`: the file is missing, unreadable, not UTF-8 or not
            TOML.
    """
    try:
        text = read_named(path)
        return text, tomllib.loads(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or one_line(str(error))
        remedy = "; fix that place" if isinstance(error, tomllib.TOMLDecodeError) else ""
        message = f"{what} {printable(str(path))} cannot be read: {reason}{remedy}"
        raise failure(message) from error


@contextmanager
def atomic_write(path: Path, *, durable: bool = False) -> Generator[Path]:
    """Yield a temporary name to write to; the file then replaces `path`.

    On an exception the file is removed. If nothing was written, `path` stays as it is.

    Args:
        path: the file.
        durable: whether to wait until its content is on the disk. A power cut then leaves the old
            file or this one, never an empty one, once `sync_names` has run, too.
    """
    partial = temporary_sibling(path)
    try:
        yield partial
        if partial.exists():
            if durable:
                sync(partial)
            partial.replace(path)
    except BaseException:  # signals, and panics in Rust, as well
        with suppress(OSError):  # the first error counts
            partial.unlink(missing_ok=True)
        raise


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Generator[Path]:
    """Yield an empty file. When it is complete, it replaces the file that a user named.

    It is made before long work begins, so that a wrong name fails at once.

    Args:
        path: the file. If it is a link, the link is replaced, not its target.
        private: whether only the user may read the file.

    Raises:
        KpBatchError: the name is that of a folder, or the file cannot be made in its folder.
    """
    with atomic_write(path) as partial:
        with writing_to_named(path):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            partial.touch(0o600 if private else 0o666, exist_ok=False)
        yield partial


@contextmanager
def writing_to_named(path: Path) -> Generator[None]:
    """Explain why a file that a user named cannot be written.

    Raises:
        BrokenPipeError: nobody reads the pipe any more.
        KpBatchError: the system refuses it.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, and a zero character
        reason = getattr(error, "strerror", None) or error
        name = printable(str(path))
        raise KpBatchError(
            f"{name} cannot be written: {reason}; name a file in an existing folder"
        ) from error


def note_leftovers_in(notes: Path) -> None:
    """List in a file what a killed process would leave behind; see `note_leftover`."""
    _NOTES.append(os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))


def note_leftover(path: Path) -> None:
    """Note a file or folder that this process will remove; its name must be unique."""
    for notes in _NOTES:
        with suppress(OSError):  # the disk may be full
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
    """Wait until a folder's names are on the disk, if its file system supports that.

    Raises:
        OSError: the names could not be written.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except (PermissionError, IsADirectoryError):  # the answer of some systems
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC_OF_FOLDERS:
            raise
    finally:
        os.close(descriptor)


def make_durable_folder(path: Path) -> None:
    """Make a folder and its parents if they are missing, and wait until they are on the disk.

    Raises:
        OSError: the folder cannot be made.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        sync_names(folder.parent)


def sync_new(files: Collection[Path], known: Iterable[Path], root: Path) -> None:
    """Wait until new files, and the names of them and of their new folders, are on the disk.

    It does not use `syncfs`: in FUSE that does nothing, and elsewhere it also waits for other
    programs' files, and fails with them.

    Args:
        files: the new files, below the root.
        known: files below the root that are on the disk already, with their folders.
        root: a folder whose own name is on the disk.

    Raises:
        OSError: a file or name could not be written.
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
    """Return all files in a folder of a warehouse, at any depth, in order; none if it is missing.

    Raises:
        WarehouseError: the folder is a link or contains one, whose target is not the warehouse's.
    """
    return sorted(map(Path, _below(folder)))


def refuse_links_below(folder: Path) -> None:
    """Refuse a link in a folder of a warehouse, at any depth.

    Raises:
        WarehouseError: the folder is a link or contains one.
    """
    for _ in _below(folder):
        pass


def _below(folder: Path) -> Iterator[str]:
    """Yield the files in a folder in any order, as texts: making paths takes longer."""
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
    """Refuse a link in a place where a writer works.

    Raises:
        WarehouseError: the path is a link.
    """
    if path.is_symlink():
        raise WarehouseError(
            f"{path} is a symbolic link: files behind it could be changed or removed; replace it "
            "with what it points to (only the warehouse itself may be a link)"
        )


def read_cache(name: str) -> str | None:
    """Return a file of the user's cache; None if it is missing or not a text."""
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: no home folder
        return (cache_folder() / name).read_text("utf-8")
    return None


def write_cache(name: str, text: str) -> None:
    """Write a file of the user's cache, or replace it."""
    with suppress(OSError, RuntimeError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / name) as partial:
            partial.write_text(text, "utf-8")


def cache_folder() -> Path:
    """Return the folder of the user's cache, which may be missing."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kp-batch"
