"""What an import has come to, in words."""

from collections.abc import Iterator, Mapping
from typing import cast

from kp_batch.imports.change import Forgotten
from kp_batch.imports.rejects import NAMES
from kp_batch.imports.run import Imported
from kp_batch.text import number, shortened

_WHAT = 60  # characters: it may be a name from the source


def as_text(done: Imported, archive: str) -> str:
    """Lines for a terminal or a log.

    Args:
        done: what it has come to.
        archive: its folder, or URL.
    """
    return "\n".join(_lines(done, archive))


def forgotten_text(done: Forgotten, archive: str) -> str:
    """A line that tells what was taken back."""
    records = f", {number(done.records, 'record')} of sources" if done.records else ""
    return (
        f"{number(done.traces, 'trace')} taken back{records}; changed "
        f"{number(done.files_changed, 'file')} of {archive}"
    )


def _lines(done: Imported, archive: str) -> Iterator[str]:
    files = f"{done.files_read:,} of {number(done.files, 'file')}"
    yield f"{number(done.traces, 'trace')} from {files} that are new or changed"
    yield f"  changed    {number(done.files_changed, 'file')} of {archive}"
    if done.deleted:
        yield f"  deleted    {number(done.deleted, 'trace')} there; as before here"
    for title, counts in (
        ("refused", done.refused),
        ("waiting", done.waiting),
        ("passed over", done.passed_over),
        ("unmapped", done.unmapped_domains),
    ):
        for what, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
            yield f"  {title:<10} {count:,} {shortened(what, _WHAT)}"
    if done.expired:
        yield f"  expired    {number(done.expired, 'trace')} passed over 30 days ago"
    for name, rule in done.rules.items():
        yield f"  rule       {name}: {_rule(rule)}"
    stands = {kind: count for kind, count in done.standing.items() if count}
    if stands:
        told = ", ".join(f"{count:,} {kind}" for kind, count in stands.items())
        yield f"  standing   {told}: see {', '.join(f'{archive}/{NAMES[kind]}' for kind in stands)}"


def _rule(rule: object) -> str:
    """A rule in words: its names and values."""
    if not isinstance(rule, Mapping):
        return str(rule)
    parts = cast("Mapping[str, object]", rule).items()
    told = (f"{name} {_rule(each)}".replace(", ", "; ") for name, each in parts if each != {})
    return ", ".join(told)
