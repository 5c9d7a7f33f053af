"""Removes traces, or what only some files have, from an archive, and keeps them out."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from kp_batch.archive.sources import absolute
from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import Rules
from kp_batch.errors import ArchiveError, KpBatchError
from kp_batch.imports.building import Work
from kp_batch.imports.change import MAX_WAIT, ArchiveChange, Forgotten, before
from kp_batch.imports.destination import Archive, target_of
from kp_batch.imports.merging import Merge
from kp_batch.imports.store import RecordStore, is_done, opened_store
from kp_batch.imports.turns import build_all
from kp_batch.imports.workers import Workers
from kp_batch.storage.urls import is_url
from kp_batch.text import shortened, some_of, unknown_of

UNITS_PER_PART = 1_000  # rebuilt at once
_NAMED = 3
_LETTERS = 400  # of a name that is shown; paths differ at their end
_COMPARED = 10_000  # names; comparing more takes seconds


def forget(
    archive: str | PathLike[str], *, ids: Sequence[str] = (), files: Sequence[str] = ()
) -> Forgotten:
    """Remove traces, or records that only some files have, from an archive, and keep them out.

    Args:
        archive: its folder, or its URL in a bucket.
        ids: ids of traces, which no file brings back.
        files: files of a source, or their folders, even if they no longer exist; records that other
            files contain later still count.

    Raises:
        KpBatchError: a path is empty, or the archive has nothing of one of them; nothing was
            changed.
        ArchiveError: nothing was imported into it.
    """
    if not all(files):  # an unset variable, for example: it would mean the current folder
        raise KpBatchError(
            "the path to forget is empty; nothing was changed; name a file or a folder"
        )
    paths = [file if is_url(file) else absolute(file) for file in files]
    with (
        TemporaryDirectory(prefix="kp-import-") as name,
        target_of(str(archive), Path(name) / "archive").alone() as opened,
        opened_store(opened) as store,
    ):
        form = FORMATS.get(store.state.format) if store else None
        if not store or not form:
            raise ArchiveError(
                f"{archive} is not an imported archive that this version knows; name an archive of "
                "kp-batch import, or install the version that made it"
            )
        names = [form.trace_of(id_) for id_ in ids]
        _check_names(store, names, form.id_of)
        _check_paths(store, paths)
        return _forget(opened, store, names, paths, Path(name))


def _forget(
    archive: Archive, store: RecordStore, names: Sequence[str], paths: Sequence[str], folder: Path
) -> Forgotten:
    state, form = store.state, FORMATS[store.state.format]
    known = store.known_sources()
    gone = {each.id for path, each in known.items() if _lies_in(path, paths)}
    touched = {*names, *(unit.name for unit in store.units_of_files(gone))}
    touched |= {each for unit in store.units(names).values() for each in unit.links}
    if not is_done(archive, state.number):
        touched |= {*store.built_by(state.number)}
    forgotten: set[tuple[str, bytes | None]] = {(name, None) for name in names}
    work = Work(
        form=form,
        rules=Rules.from_json(state.rules),
        merge=Merge(state.number + 1, form.source, gone=gone, forgotten=forgotten),
        number=state.number + 1,
        store=store.path,
        runs=(),
        void=frozenset(),
        now=before(timedelta(0)),
        overdue_since=before(MAX_WAIT),
        parts=1 + len(touched) // UNITS_PER_PART,
        folder=folder / "turns",
    )
    change = ArchiveChange(
        archive, store, form, {each.id: path for path, each in known.items()}, folder / "built"
    )
    links = {name: unit.links for name, unit in store.units(touched).items()}
    only_gone = build_all(change, Workers(0), work, touched)
    change.list_refusals((), paths)
    forgotten |= only_gone
    changed = change.store(
        replace(state, number=state.number + 1),
        {},
        expired="",
        is_done=is_done(archive, state.number),
        forgotten=sorted(forgotten - store.forgotten({name for name, _ in forgotten}), key=str),
    )
    units = {name for name, _ in only_gone}
    traces = {*names, *(each for name in units for each in links.get(name) or (name,))}
    return Forgotten(len(traces), len(only_gone), changed)


def _check_names(store: RecordStore, names: Sequence[str], id_of: Callable[[str], str]) -> None:
    """Refuse names that the archive does not contain.

    Raises:
        KpBatchError: some names are unknown; the message suggests similar ones.
    """
    forgotten = (name for name, digest in store.forgotten(names) if digest is None)
    kept = {*store.units(names), *forgotten}
    if unknown := [id_of(name) for name in dict.fromkeys(names) if name not in kept]:
        known = {id_of(name) for name in store.values("SELECT name FROM units")}
        raise _unknown(names, unknown, known, "id")


def _check_paths(store: RecordStore, paths: Sequence[str]) -> None:
    """Refuse paths that are neither files nor folders of files; see `_check_names`."""
    query = "SELECT path FROM files WHERE stamp IS NOT NULL UNION SELECT file FROM refusals"
    files = store.values(query) if paths else []
    known = {*files, *(folder for file in files for folder in _folders(file))}
    if unknown := [path for path in dict.fromkeys(paths) if path.rstrip("/") not in known]:
        raise _unknown(paths, unknown, known, "path")


def _lies_in(file: str, names: Sequence[str]) -> bool:
    """Whether a file is one of these names, or in a folder among them."""
    return not {file, *_folders(file)}.isdisjoint(name.rstrip("/") for name in names)


def _folders(file: str) -> Iterator[str]:
    while folder := file.rpartition("/")[0]:
        yield folder
        file = folder


def _unknown(
    given: Sequence[str], unknown: Sequence[str], known: Collection[str], noun: str
) -> KpBatchError:
    words = (f"{shortened(x, _LETTERS)}{_suggestion(x, known)}" for x in unknown[:_NAMED])
    named = some_of(words, len(unknown))
    return KpBatchError(unknown_of(named, len(unknown), len(set(given)), noun))


def _suggestion(name: str, known: Collection[str]) -> str:
    """Return a question that suggests a known name, which contains this one or resembles it."""
    head = _head(name)
    rest = name.removeprefix(head)
    others = sorted(x.removeprefix(head) for x in known if _head(x) == head)
    near = [x for x in others if rest in x] or get_close_matches(rest, others[:_COMPARED], n=1)
    return f" (did you mean {shortened(head + near[0], _LETTERS)}?)" if near else ""


def _head(name: str) -> str:
    """Return what many names have in common: the prefix of ids, or a folder."""
    folder, slash, _ = name.rpartition("/")
    prefix = "kp:trace:"
    return prefix if name.startswith(prefix) else folder + slash
