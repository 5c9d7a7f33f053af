"""The result of an import or of `import-forget`: as data, and as text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from kp_batch.html import Displayed
from kp_batch.imports.change import Forgotten
from kp_batch.imports.refusals import NAMES
from kp_batch.text import count_of, shortened, ten_of

_LINES = 10  # shown under one title
_LABEL = 60  # characters: a label may be a name from the source


@dataclass(frozen=True, kw_only=True)
class Imported(Displayed):
    """The result of an import."""

    traces: int = 0  # new traces, and traces with new records
    files: int  # of the sources
    files_read: int = 0  # new or changed files of the sources
    files_changed: int = 0  # of the archive
    refused: dict[str, int] = field(default_factory=dict[str, int])  # by reason
    waiting: dict[str, int] = field(default_factory=dict[str, int])  # by reason
    unresolved: dict[str, int]  # all `refused` and `waiting`, earlier imports included
    skipped: dict[str, int] = field(default_factory=dict[str, int])  # not an agent's, by kind
    expired: int = 0  # traces without an agent, removed after 30 days
    deleted: int = 0  # traces that a registry no longer has; they stay
    unmapped_domains: dict[str, int] = field(default_factory=dict[str, int])  # not in the map
    rules: dict[str, Any]


def as_text(done: Imported, archive: str) -> str:
    """Return the lines about an import into an archive, for a terminal or a log."""
    return "\n".join(_lines(done, archive))


def forgotten_text(done: Forgotten, archive: str) -> str:
    """Return the line about what was forgotten."""
    records = f", {count_of(done.records, 'record')} of sources" if done.records else ""
    return (
        f"{count_of(done.traces, 'trace')} removed{records}; changed "
        f"{count_of(done.files_changed, 'file')} of {archive}"
    )


def _lines(done: Imported, archive: str) -> Iterator[str]:
    files = f"{count_of(done.files_read, 'new or changed file')} ({done.files:,} in all)"
    yield f"{count_of(done.traces, 'trace')} from {files}"
    yield f"  changed    {count_of(done.files_changed, 'file')} of {archive}"
    if done.deleted:
        yield f"  deleted    {count_of(done.deleted, 'trace')} at the source; they stay here"
    for title, counts in (
        ("refused", done.refused),
        ("waiting", done.waiting),
        ("skipped", done.skipped),
        ("unmapped", done.unmapped_domains),
    ):
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        for label, count in ordered[:_LINES]:
            yield f"  {title:<10} {count:,} {shortened(label, _LABEL)}"
        if rest := ordered[_LINES:]:
            yield f"  {title:<10} {sum(count for _, count in rest):,} of {len(rest):,} more kinds"
    if done.expired:
        yield f"  expired    {count_of(done.expired, 'trace')} without an agent, after 30 days"
    for name, rule in done.rules.items():
        yield f"  rule       {name}: {_rule(rule)}"
    unresolved = {kind: count for kind, count in done.unresolved.items() if count}
    if unresolved:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in unresolved.items())
        files = ", ".join(f"{archive}/{NAMES[kind]}" for kind in unresolved)
        yield f"  unresolved {counts}: see {files}"


def _rule(rule: object) -> str:
    """Return a rule in words: its names and values."""
    if not isinstance(rule, Mapping):
        return str(rule)
    parts = cast("Mapping[str, object]", rule).items()
    texts = (f"{name} {_rule(value)}".replace(", ", "; ") for name, value in parts if value != {})
    return ten_of(texts)
