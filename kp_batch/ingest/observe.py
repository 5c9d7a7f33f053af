"""Looks at the archive: which files it has, and what is in those whose content is not known yet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from kp_batch.archive.file_changes import FileChanges, file_changes
from kp_batch.archive.ledger import (
    Entry,
    Ledger,
    as_frame,
    as_ledger,
    with_gone,
)
from kp_batch.archive.sources import SourceFile, discover
from kp_batch.executor import Executor, Step, cut
from kp_batch.ingest.contents import (
    VERSION,
    Content,
    StagedPart,
    Unreadable,
    identify,
    stage_contents,
)
from kp_batch.progress import progress, say
from kp_batch.run import Run
from kp_batch.text import printable
from kp_batch.warehouse.relations import scan
from kp_batch.warehouse.tables import files_of

# Both fetch files.
IDENTIFY = Step("identify", identify, retries=2)
STAGE = Step("stage", stage_contents, retries=2)

# A part of the files: so many bytes, each file counting as this many at the least.
_PART_BYTES, _FILE_BYTES = 64 << 20, 64 << 10
# A file that was written this shortly before it was looked at may be written again within the same
# tick of its clock: its time says nothing, and the next run looks at its content once more.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True)
class Observed:
    """The archive as it is now; its ledger is `staging.table("files")`."""

    files: FileChanges
    differs: bool  # from what the published ledger says
    facts: tuple[Path, ...] = ()  # of content that was not known
    texts: tuple[Path, ...] = ()  # likewise


def observe(run: Run, workers: Executor) -> Observed:
    """Look at the archive: stages its ledger, and the facts and texts of content not known yet.

    Args:
        run: the run.
        workers: read the files.

    Raises:
        ArchiveError: a name gives no file.
    """
    before = _published_ledger(run)
    sources = discover(run.config.archive, run.config.warehouse)
    looked_at = [each for each in sources if not _is_known(each, before.get(each.path))]
    contents, staged = _read(run, looked_at, workers)
    found: Ledger = {}
    for source in sources:
        last = before.get(source.path)
        if source.path in contents:
            found[source.path] = _entry(run, source, contents[source.path], last)
        elif last is not None:  # it is known
            found[source.path] = replace(last, status="read")
    _warn_of_loss(found, before)
    return Observed(
        file_changes(found, before),
        _stage_ledger(run, with_gone(found, before, prune=run.config.prune), before),
        tuple(chain.from_iterable(part.facts for part in staged)),
        tuple(chain.from_iterable(part.texts for part in staged)),
    )


def observe_published(run: Run) -> Observed:
    """Take the archive as it was last seen: only the rows of its content are counted again."""
    before, rows = _published_ledger(run), _rows_by_content(run)
    counted = {
        path: replace(each, rows=rows.get(each.file_id or "", 0)) for path, each in before.items()
    }
    return Observed(file_changes(before, before), _stage_ledger(run, counted, before))


def _published_ledger(run: Run) -> Ledger:
    return as_ledger(scan(run.config.warehouse, "files", run.tables.get("files")).collect())


def _stage_ledger(run: Run, ledger: Ledger, before: Ledger) -> bool:
    """Stage the ledger as the run will leave it; returns whether it differs from the published."""
    as_frame(ledger.values()).write_parquet(run.staging.table("files"))
    now, then = ({path: each.content for path, each in x.items()} for x in (ledger, before))
    return now != then


def _is_known(source: SourceFile, entry: Entry | None) -> bool:
    return (
        entry is not None
        and entry.status != "unreadable"  # its cause, a permission say, may be gone
        and entry.source == source
        and source.mtime_ns != 0
        and entry.file_id is not None
        and entry.file_id.endswith(VERSION)
    )


def _read(
    run: Run, sources: Sequence[SourceFile], workers: Executor
) -> tuple[dict[str, "_Found"], list[StagedPart]]:
    """Read what is not known yet: what each file holds, by its path, and what was staged of it."""
    if not sources:
        return {}, []
    ids = _identified(sources, workers)
    rows: dict[str, int | Unreadable] = {**_rows_by_content(run)}
    unknown: dict[str, Content] = {}
    for source, file_id in zip(sources, ids, strict=True):
        if isinstance(file_id, str) and file_id not in rows:
            unknown.setdefault(file_id, Content(file_id, source))
    staged = _staged(run, list(unknown.values()), workers)
    for part, made in staged:
        rows |= {each.file_id: count for each, count in zip(part, made.rows, strict=True)}
    found = {
        source.path: _Found(file_id, rows[file_id])
        if isinstance(file_id, str)
        else _Found(None, file_id)
        for source, file_id in zip(sources, ids, strict=True)
    }
    return found, [made for _, made in staged]


@dataclass(frozen=True)
class _Found:
    """What a file holds: its content, if it could be read, and the rows or why it has none."""

    file_id: str | None
    rows: int | Unreadable


def _identified(sources: Sequence[SourceFile], workers: Executor) -> list[str | Unreadable]:
    parts = cut(sources, _size, _PART_BYTES)
    ids: list[str | Unreadable] = []
    with progress("identifying", len(sources), "files") as shown:
        for part in workers.map(IDENTIFY, parts):
            ids += part
            shown.add(len(part))
    return ids


def _staged(
    run: Run, contents: Sequence[Content], workers: Executor
) -> list[tuple[tuple[Content, ...], StagedPart]]:
    forgotten = files_of(run.config.warehouse, "forgotten", run.tables.get("forgotten"))
    parts = cut(contents, lambda each: _size(each.source), _PART_BYTES)
    staged: list[StagedPart] = []
    with progress("reading", len(contents), "files") as shown:
        for part in workers.map(STAGE, parts, forgotten, run.staging):
            staged.append(part)
            shown.add(len(part.rows))
    return list(zip(parts, staged, strict=True))


def _size(source: SourceFile) -> int:
    return max(source.size, _FILE_BYTES)


def _rows_by_content(run: Run) -> dict[str, int]:
    """How many rows each content has that was read before, by its file_id."""
    facts = scan(run.config.warehouse, "facts", run.tables.get("facts"))
    return dict(facts.group_by("file_id").len().collect(engine="streaming").iter_rows())


def _entry(run: Run, source: SourceFile, found: _Found, last: Entry | None) -> Entry:
    """The ledger's entry of a file that was looked at."""
    settled = source.mtime_ns < int(run.started_at.timestamp() * 1e9) - _SETTLED_NS
    mtime_ns = source.mtime_ns if settled else 0
    if isinstance(found.rows, int):
        return Entry(source.path, "read", source.size, mtime_ns, found.file_id, found.rows)
    say(f"warning: {printable(source.path)} is left out: {printable(found.rows.message)}")
    return replace(
        last or Entry(source.path, "unreadable", source.size, mtime_ns, None, 0),
        status="unreadable",
        size=source.size,
        mtime_ns=mtime_ns,
        reasons=list(found.rows.reasons),
        message=found.rows.message,
    )


def _warn_of_loss(found: Ledger, before: Ledger) -> None:
    rows = sum(each.rows for each in found.values() if each.status == "read")
    known = {path: each for path, each in before.items() if each.status != "gone"}
    held = sum(each.rows for each in known.values())
    gone = [path for path in known if path not in found]
    if held and 2 * rows <= held:
        example = f" (such as {printable(gone[0])})" if gone else ""
        say(
            f"warning: the archive has lost half of its rows or more: it holds {rows:,} now, and "
            f"held {held:,}; {len(gone):,} files are gone{example}"
        )
