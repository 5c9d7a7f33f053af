"""Formats what the works on a warehouse tell for a terminal, in a few lines each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from kp_batch.runs.reasons import in_words
from kp_batch.text import aligned, number, one_line, padded, printable, shortened, width

if TYPE_CHECKING:
    from kp_batch.operations.forget import ForgetResult
    from kp_batch.operations.rollback import RollbackResult
    from kp_batch.operations.settings import Setting
    from kp_batch.operations.vacuum import VacuumResult
    from kp_batch.operations.verify import Verification

_ID = 100  # characters
_VALUE = 73  # likewise; so long are the weights of a profile
_FILES = 10  # that are named, of each kind
_PARAMETERS = {
    "audit": "audits",
    "weights": "profiles",
}  # what sets what changed, where that has another name


def verification_text(result: "Verification") -> str:
    """Format a verification for a terminal."""
    skipped = result.sampled - result.checked
    files = "its file is" if skipped == 1 else "their files are"
    rows = [
        {
            "column": each.column,
            "greatest difference": f"{each.greatest:.3g}",
            "tolerance": f"{each.tolerance:.3g}",
            "trace": shortened(each.trace_id or "", _ID),
        }
        for each in result.differences
    ]
    return "\n".join(
        [
            f"{number(result.checked, 'trace')} verified (--seed {result.seed})"
            + (f", {skipped:,} skipped: {files} gone or changed" if skipped else ""),
            "",
            *aligned(rows),
        ]
    )


_UNCHANGED = "nothing was changed"


def removed_text(result: "VacuumResult", *, dry_run: bool = False) -> str:
    """Format what was removed for a terminal, or what would be."""
    counts = [
        (result.files, "file"),
        (result.facts, "fact"),
        (result.raw_rows, "raw row"),
        (result.vectors, "vector"),
    ]
    told = ", ".join(number(count, what) for count, what in counts)
    head = f"{'to be removed' if dry_run else 'removed'}: {told}"
    readable = f"{number(len(result.readable), 'run')} since {next(iter(result.readable), None)}"
    lines = [
        head if any(count for count, _ in counts) else "nothing to remove",
        *_lost(result.lost, dry_run=dry_run),
        *([_line("readable", f"{readable}, with --as-of")] if result.readable else []),
    ]
    return "\n".join([*lines, *([_UNCHANGED] if dry_run else [])])


def forgotten_text(result: "ForgetResult", *, dry_run: bool = False) -> str:
    """Format what was forgotten for a terminal, or what would be."""
    traces = f"{number(result.traces, 'scored trace')}, {number(result.rows, 'rejected row')}"
    ids = [
        ("replaced", result.replaced, "of content that counts no more"),
        ("before", result.before, "forgotten before"),
        ("unseen", result.unseen, f"never seen: {result.unseen_named}"),
    ]
    work = [
        ("replay", result.replayed, "trace"),
        ("restate", result.restated, "trace"),
        ("rewrite", result.partitions, "partition"),
        ("remove", result.vectors, "vector"),
    ]
    run = f" by run {result.run_id}" if result.run_id else ""
    is_work = result.traces or result.rows or result.replaced or result.unseen
    lines = [
        f"{'to be forgotten' if dry_run else f'forgotten{run}'}: {traces}"
        if is_work
        else "nothing to forget",
        *(_line(name, f"{number(count, 'id')} {what}") for name, count, what in ids if count),
        *(_line(name, number(count, what)) for name, count, what in work if count),
        *(
            [_line("finish", "what an earlier forget left is removed, too")]
            if result.finishes
            else []
        ),
        *_lost(result.lost, dry_run=dry_run),
        *(
            _line("archive", f"{x} keeps them, too: kp-batch import --forget ID... -o {quote(x)}")
            for x in result.archives
        ),
    ]
    return "\n".join([*lines, *([_UNCHANGED] if dry_run else [])])


def rolled_back_text(result: "RollbackResult", *, dry_run: bool = False) -> str:
    """Format what a rollback undid for a terminal, or would undo."""
    if result.is_published:
        return f"nothing to roll back: what run {result.to_run} left is published"
    head = "to be rolled back" if dry_run else f"rolled back by run {result.run_id}"
    counts = [
        ("change", result.rescored, "score"),
        ("remove", result.removed, "trace"),
        ("return", result.returned, "trace"),
    ]
    rejects = f"{result.rejects:,} \N{RIGHTWARDS ARROW} {result.rejects_then:,}"
    given = sorted({_PARAMETERS.get(each.code, each.code) for each in result.settings})
    lines = [
        f"{head}: from run {result.from_run} to run {result.to_run}",
        *(_line(name, number(count, what)) for name, count, what in counts if count),
        *([_line("rejects", rejects)] if result.rejects != result.rejects_then else []),
        *(_line("setting", printable(each.words)) for each in result.settings),
        *(
            [_line("again", f"a run that is given {', '.join(given)} sets it anew")]
            if given
            else []
        ),
        *_next_files(result),
    ]
    return "\n".join([*lines, *([_UNCHANGED] if dry_run else [])])


def _next_files(result: "RollbackResult") -> Iterator[str]:
    """Tell what the next run would find in the archive, if anybody has looked."""
    if result.not_looked:
        yield _line("next run", f"the archive was not looked at: {printable(result.not_looked)}")
    for what, paths in asdict(result.files).items() if result.files else ():
        for path in paths[:_FILES]:
            yield _line("next run", f"{what}: {printable(path)}")
        if len(paths) > _FILES:
            yield _line("next run", f"{what}: {len(paths) - _FILES:,} more")


def _lost(runs: Sequence[str], *, dry_run: bool) -> list[str]:
    """Tell which runs --as-of cannot read any more, if there are any."""
    if not runs:
        return []
    which = runs[0] if len(runs) == 1 else f"from {runs[0]} to {runs[-1]}"
    can = "could" if dry_run else "can"
    told = f"{number(len(runs), 'run')} {can} no longer be read with --as-of: {which}"
    return [_line("lost", told)]


def _line(name: str, told: str) -> str:
    return f"  {name:<10} {told}"


def settings_text(settings: Iterable["Setting"]) -> str:
    """Format the settings of a warehouse for a terminal."""
    rows = [(printable(each.name), _value(each.value), each.run_id) for each in settings]
    widths = [max(width(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(
        f"{padded(name, widths[0])}  {padded(value, widths[1])}  since run {run_id}"
        for name, value, run_id in rows
    )


def _value(value: Any) -> str:
    if isinstance(value, dict) and "sql" in value:
        audit = cast("dict[str, str]", value)
        return shortened(f"{audit['severity']}: {one_line(audit['sql'])}", _VALUE)
    if isinstance(value, dict):
        weights = cast("dict[str, float]", value)
        return ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
    return printable(in_words(value))
