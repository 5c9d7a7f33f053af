"""What a vacuum removed, and its text for a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kp_batch.html import Displayed
from kp_batch.rendering import Facts, Head, Part, as_text
from kp_batch.text import count_of


@dataclass(frozen=True)
class VacuumResult(Displayed):
    """The numbers of what was removed or merged, or would be."""

    files: int  # of tables
    facts: int  # rows, of replaced files
    raw_rows: int  # the JSON of rejects
    vectors: int
    merged: int = 0  # small files of vectors, which a later vacuum removes
    lost: tuple[str, ...] = ()  # runs that --as-of can no longer read, the oldest first
    readable: tuple[str, ...] = ()  # runs that it still can

    @property
    def removes_anything(self) -> bool:
        """Whether anything is removed, or can no longer be read."""
        return bool(self.files or self.facts or self.raw_rows or self.vectors or self.lost)

    @property
    def words(self) -> str:
        """What is removed; empty if it is nothing but runs that can no longer be read."""
        counts = [
            (self.files, "file"),
            (self.facts, "fact"),
            (self.raw_rows, "raw row"),
            (self.vectors, "vector"),
        ]
        listed = ", ".join(count_of(count, noun) for count, noun in counts)
        return listed if any(count for count, _ in counts) else ""


def removed_text(result: VacuumResult, *, dry_run: bool = False) -> str:
    """Format what was removed for a terminal, or what would be."""
    last = ["nothing was changed"] if dry_run else []
    return as_text([*_removed(result, dry_run=dry_run), *last])


def _removed(result: VacuumResult, *, dry_run: bool) -> Iterator[Part]:
    head = f"{'to be removed' if dry_run else 'removed'}: {result.words}"
    yield Head(head if result.words else "nothing to remove")
    facts = [*_lost_runs(result.lost, is_done=not dry_run)]
    if result.readable:
        runs = f"{count_of(len(result.readable), 'run')} since {result.readable[0]}"
        facts.append(("readable", f"{runs}, with --as-of"))
    if result.merged:
        merged = f"{count_of(result.merged, 'small file')} of vectors"
        facts.append(("merge", f"{merged}; a later vacuum removes these"))
    yield Facts(facts)


def _lost_runs(runs: Sequence[str], *, is_done: bool) -> Iterator[tuple[str, str]]:
    """Yield the runs that --as-of can no longer read, if there are any."""
    if runs:
        which = runs[0] if len(runs) == 1 else f"from {runs[0]} to {runs[-1]}"
        can = "can" if is_done else "could"
        yield "lost", f"{count_of(len(runs), 'run')} {can} no longer be read with --as-of: {which}"
