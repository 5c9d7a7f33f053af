"""Imports other systems' traces into an archive; of a source, what is new or changed is read."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from kp_batch.errors import ArchiveError, KpBatchError
from kp_batch.importers.draft import Refused
from kp_batch.importers.format import Format, Input
from kp_batch.importers.index import Index
from kp_batch.importers.rules import Rules
from kp_batch.importers.work import Work
from kp_batch.memory import duckdb_config
from kp_batch.operations.import_sources import content_of, files_of, here, newer, stamp_of, unread
from kp_batch.operations.recognising import recognised
from kp_batch.operations.results import Imported
from kp_batch.progress import progress, warn
from kp_batch.text import encodable
from kp_batch.warehouse.lock import locked
from kp_batch.whole_files import HALF_WRITTEN

IMPORTER = 1  # the version of how formats become traces
_FORMAT = "kp_batch.format"
_PART = f"*{HALF_WRITTEN}"
_NO_NAME = Refused(["unreadable_file"], "its name is no UTF-8: rename it")
_RULES = {
    "success": '[success] with score = "NAME" and at_least = 1.0, or always = true',
    "confidence": '[confidence] with score = "NAME", min = 0 and max = 1, or always = 0.8',
}


def format_of(sources: Sequence[str]) -> Format:
    """The format of sources, by what their files hold.

    Raises:
        KpBatchError: they may be of none, or of more than one.
        ArchiveError: there is no such file or folder.
    """
    return recognised(files_of(sources), content_of, here)


def import_traces(form: Format, sources: Sequence[str], archive: Path, rules: Rules) -> Imported:
    """Import traces; see `Format` and `Rules`.

    Files that are known from the last import are read again only where they tell of a trace that
    another file tells of anew; of a database that is known, what is new is read. What is gone from
    the source takes nothing away.

    Args:
        form: of the sources.
        sources: files, folders of which all files count, and URLs of databases.
        archive: the folder of the archive; made where it is missing.
        rules: what decides where the format does not.

    Raises:
        KpBatchError: the rules leave something open, or name what the sources have not; or the
            archive is of another format.
        ArchiveError: there is no file of the format.
    """
    _check_rules(form, rules)
    _warn_of_one_score(rules)
    inputs = _inputs(form, files_of(sources, archive))
    if not inputs:
        raise ArchiveError(f"no file of {form.name} at {', '.join(sources)}")
    with (
        locked(archive / "_import", wait=False),
        TemporaryDirectory(prefix="kp-import-") as name,
        closing(Work(form, rules, Path(name), here)) as work,
        duckdb.connect(config=duckdb_config(Path(name) / "spill")) as connection,
    ):
        for part in (*archive.glob(_PART), *archive.glob(f"_import/{_PART}")):
            part.unlink()  # of one that was killed
        return _import(work, inputs, archive, connection)


def _import(
    work: Work, inputs: Mapping[str, Input], archive: Path, connection: duckdb.DuckDBPyConnection
) -> Imported:
    """Import what is new or changed; the archive's lock is held."""
    made_by = {
        _FORMAT: work.form.name,
        "kp_batch.importer": str(IMPORTER),
        "kp_batch.rules": work.rules.as_json(),
    }
    index = _index_of(archive, made_by)
    known = index.stamps if index.made_by == made_by else {}
    stamps = {path: stamp_of(each) for path, each in inputs.items()}
    changed = {path: stamp for path, stamp in stamps.items() if known.get(path) != stamp}
    files_changed, left = 0, set[str]()
    if changed:
        new = {path: newer(inputs[path], known.get(path, "")) for path in sorted(changed)}
        read = _read(work, new.values())
        whole = {path for path in read if not new[path].since}
        again = {path: inputs[path] for path in inputs if path not in new or path in read - whole}
        left, stale = _read_again(work, again, index, whole, connection)
        if not known:  # all is made anew, as far as it can be read
            stale |= index.stamps.keys() - read
            left |= index.traces_of(stale)
        work.decide(left, connection)
        if not known:
            work.check_names()
        blank = {x: unread(new[x]) for x in new if x in read or x in known}
        blank |= dict.fromkeys(stale, "")
        # Before any file is changed: who is killed after that reads the same files again.
        units = work.units.all_files
        index = index.save(index.made_by or made_by, blank, (), units, connection)
        files_changed = work.write(archive, made_by, connection)
        done = {path: changed[path] for path in read - stale}
        index.save(made_by, blank | done, whole, units, connection)
    tally = work.tally
    return Imported(
        traces=tally.traces,
        files=len(inputs),
        files_read=len(changed),
        files_changed=files_changed,
        left=len(left),
        refused=dict(work.refusals.counts),
        passed_over=dict(tally.passed_over),
        unmapped_domains=dict(tally.unmapped),
        rules=json.loads(made_by["kp_batch.rules"]),
    )


def _inputs(form: Format, paths: Sequence[str]) -> dict[str, Input]:
    """The files that are read, by their paths; those whose names cannot be written are refused."""
    named = [path for path in paths if path == encodable(path)]
    odd = [encodable(path) for path in paths if path != encodable(path)]
    inputs = [*form.inputs(named, content_of), *(Input(path, refused=_NO_NAME) for path in odd)]
    return {each.path: each for each in inputs}


def _check_rules(form: Format, rules: Rules) -> None:
    """Refuse rules that leave open what the format does not tell, before any work."""
    given = {"success": rules.success, "confidence": rules.confidence}
    missing = [_RULES[each] for each in given if not given[each] and each not in form.decides]
    if missing:
        raise KpBatchError(
            f"{form.name} does not tell what only you can decide; the rules lack "
            f"{'; and '.join(missing)}"
        )


def _warn_of_one_score(rules: Rules) -> None:
    score = rules.success and rules.success.score
    if score and rules.confidence and rules.confidence.score == score:
        warn(f"the score {score!r} decides both success and confidence: it counts twice")


def _index_of(archive: Path, made_by: Mapping[str, str]) -> Index:
    index = Index.of(archive)
    before = index.made_by.get(_FORMAT, made_by[_FORMAT])
    if before != made_by[_FORMAT]:
        raise KpBatchError(
            f"{archive} has traces of {before}, and an archive has those of one format; name "
            "another one: a run takes several"
        )
    return index


def _read(work: Work, inputs: Collection[Input]) -> set[str]:
    """Read files; returns the paths of those that could be."""
    read: set[str] = set()
    with progress("reading", len(inputs), "file") as shown:
        for each in inputs:
            if work.read(each):
                read.add(each.path)
            shown.add(1)
    return read


def _read_again(
    work: Work,
    again: Mapping[str, Input],
    index: Index,
    whole: Collection[str],
    connection: duckdb.DuckDBPyConnection,
) -> tuple[set[str], set[str]]:
    """Read what other files tell of the same traces.

    Returns:
        The traces that cannot be read again as a whole, as a file is gone, damaged, or another one
        by now; and the known files that for this have to be read again as soon as they can be.
    """
    left: set[str] = set()
    stale: set[str] = set()
    for path, still, traces in index.also_told(work.units.all_files, whole, connection):
        told = work.read_again(again[path], traces) if still and path in again else set[str]()
        left |= traces - told
        if not told:
            stale |= {path} - set(whole)
    return left, stale
