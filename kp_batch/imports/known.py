"""Whether an archive keeps anything of the traces and files that somebody wants to be forgotten."""

import json
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from kp_batch.errors import KpBatchError
from kp_batch.imports.destination import Archive
from kp_batch.imports.refusals import NAMES
from kp_batch.text import shortened, some_of, unknown_of

_NAMED = 3
_LETTERS = 400  # of a name that is shown; what differs in paths stands at their end
_COMPARED = 10_000  # names: more take seconds


def check_ids(ids: Sequence[str], known: Collection[str]) -> None:
    """Refuse ids that are unknown.

    Raises:
        KpBatchError: names some of them, with those that may be meant.
    """
    _check(ids, [id_ for id_ in dict.fromkeys(ids) if id_ not in known], known, "id")


def check_paths(paths: Sequence[str], files: Collection[str]) -> None:
    """Refuse paths that are neither files, nor folders of files; see `check_ids`."""
    folders = {folder for file in files for folder in _folders(file)}
    known = {*files, *folders}
    _check(paths, [x for x in dict.fromkeys(paths) if x.rstrip("/") not in known], known, "path")


def lies_in(file: str, names: Sequence[str]) -> bool:
    """Whether a file is one of these, or in a folder among them."""
    return not {file, *_folders(file)}.isdisjoint(name.rstrip("/") for name in names)


def _folders(file: str) -> Iterator[str]:
    while folder := file.rpartition("/")[0]:
        yield folder
        file = folder


def refused_files(archive: Archive) -> Iterator[str]:
    """The files that are named in the lists of what is refused and what waits."""
    for name in NAMES.values():
        path = archive.local_path(name)
        if path.exists():
            yield from _files_in(path)


def _files_in(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                yield str(json.loads(line)["file"])
            except (ValueError, TypeError, KeyError):
                continue  # it is damaged


def _check(given: Sequence[str], unknown: list[str], known: Collection[str], noun: str) -> None:
    if unknown:
        words = (f"{shortened(x, _LETTERS)}{_suggestion(x, known)}" for x in unknown[:_NAMED])
        named = some_of(words, len(unknown))
        raise KpBatchError(unknown_of(named, len(unknown), len(set(given)), noun))


def _suggestion(name: str, known: Collection[str]) -> str:
    """A known name that holds this one, or resembles it, as a question."""
    head = _head(name)
    rest = name.removeprefix(head)
    others = sorted(x.removeprefix(head) for x in known if _head(x) == head)
    near = [x for x in others if rest in x] or get_close_matches(rest, others[:_COMPARED], n=1)
    return f" (did you mean {shortened(head + near[0], _LETTERS)}?)" if near else ""


def _head(name: str) -> str:
    """What many names have in common: the prefix of ids, or a folder."""
    folder, slash, _ = name.rpartition("/")
    prefix = "kp:trace:"
    return prefix if name.startswith(prefix) else folder + slash
