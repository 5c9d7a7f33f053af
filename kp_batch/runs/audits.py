"""Audits: SQL that returns the rows that must not be, what it found, and how that is told."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from kp_batch.errors import AuditError, KpBatchError
from kp_batch.text import aligned, count_of, shortened

Severity = Literal["error", "warn"]
_SEVERITIES = ("error", "warn")
_KEYS = ("sql", "severity")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_ROW = 200  # characters of a row that is told


@dataclass(frozen=True)
class Audit:
    """One audit."""

    sql: str  # a SELECT
    severity: Severity = "error"  # whether its rows fail the run, or warn


@dataclass(frozen=True)
class Audits:
    """The audits of a warehouse, by name; none at first."""

    by_name: Mapping[str, Audit]

    def as_json(self) -> dict[str, dict[str, str]]:
        """The audits as JSON, from which `parse_audits` makes the same ones."""
        return {name: asdict(each) for name, each in self.by_name.items()}


@dataclass(frozen=True)
class AuditResult:
    """What an audit found."""

    name: str
    severity: Severity
    rows: int  # that must not be; 0: it passes
    allowed: bool  # whether --allow let it pass this once
    first: tuple[str, ...] = ()  # of the rows, the first five, each as JSON; not kept in `runs`

    @property
    def fails(self) -> bool:
        """Whether it fails a run."""
        return self.rows > 0 and self.severity == "error" and not self.allowed

    @property
    def state(self) -> Literal["passes", "allowed", "warns", "fails"]:
        """What that comes to."""
        if not self.rows:
            return "passes"
        if self.allowed:
            return "allowed"
        return "fails" if self.fails else "warns"


def load_audits(path: Path | str) -> Audits:
    """Load the audits of a TOML file.

    Args:
        path: a file of tables `[audits.NAME]`, each with `sql` and perhaps `severity`, error or
            warn.

    Raises:
        KpBatchError: the file is missing, unreadable or has faults; the message lists all of them.
    """
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise KpBatchError(f"the audits file {path} cannot be read: {reason}") from error
    others = sorted(content.keys() - {"audits"})
    faults = [f"unknown key {key!r} (audits stand in [audits.NAME])" for key in others]
    if not content.get("audits"):
        faults.append("no [audits.NAME] table")
    return _parsed(content.get("audits", {}), str(path), faults)


def parse_audits(audits: Mapping[str, Any], source: str) -> Audits:
    """Read audits from JSON values.

    Args:
        audits: as `Audits.as_json` has them.
        source: where they come from, for the message.

    Raises:
        KpBatchError: they have faults; the message lists all of them.
    """
    return _parsed(audits, source, [])


def _parsed(audits: Any, source: str, faults: Iterable[str]) -> Audits:
    messages = [*faults, *_faults(audits)]
    if messages:
        faults = count_of(len(messages), "fault")
        raise KpBatchError(f"the audits file {source} has {faults}: {'; '.join(messages)}")
    return Audits({name: Audit(**each) for name, each in audits.items()})


def _faults(audits: Any) -> Iterator[str]:
    if not isinstance(audits, Mapping):
        yield f"audits is a table of audits, got {audits!r}"
        return
    for name, given in cast("Mapping[str, Any]", audits).items():
        if not _NAME.fullmatch(name):
            yield f"a name is letters, digits, _ and -, got {name!r}"
        if not isinstance(given, Mapping):
            yield f"{name}: expected a table with sql, got {given!r}"
            continue
        audit = cast("Mapping[str, Any]", given)
        yield from (f"{name}: unknown key {key!r}" for key in sorted(audit.keys() - {*_KEYS}))
        if not isinstance(audit.get("sql"), str):
            yield f"{name}: sql is missing, or is no text"
        if (severity := audit.get("severity", "error")) not in _SEVERITIES:
            yield f"{name}: severity is error or warn, got {severity!r}"


def refuse_failed(results: Iterable[AuditResult], then: str) -> None:
    """Raise an error where any audit fails.

    Args:
        results: of all audits.
        then: what that comes to, and what to do.

    Raises:
        AuditError: it names all that fail.
    """
    every = tuple(results)
    if failed := [each for each in every if each.fails]:
        named = ", ".join(f"{each.name} ({count_of(each.rows, 'row')})" for each in failed)
        raise AuditError(f"{count_of(len(failed), 'audit')} failed: {named}; {then}", every)


def found_text(result: AuditResult) -> str:
    """What an audit with rows found, in one line."""
    first = "; ".join(shortened(each, _ROW) for each in result.first)
    allowed = ", allowed this once" if result.allowed else ""
    return f"audit {result.name} found {count_of(result.rows, 'row')}{allowed}: {first}"


def audits_text(results: Iterable[AuditResult]) -> str:
    """How many audits pass and which do not, in one line."""
    every = list(results)
    others = [f"{each.name} {each.state}" for each in every if each.rows]
    return ", ".join([f"{len(every) - len(others):,} of {len(every):,} pass", *others])


def audits_table(results: Iterable[AuditResult]) -> list[dict[str, str]]:
    """What audits found, a row for each."""
    return [
        {"audit": result.name, "found": result.state, "rows": f"{result.rows:,}"}
        for result in results
    ]


def results_text(results: Iterable[AuditResult]) -> str:
    """What audits found, for a terminal: those that find rows with the first of these."""
    every = list(results)
    lines = aligned(audits_table(every))
    for each in every:
        if each.first:
            lines += ["", f"{each.name}:", *(f"  {shortened(row, _ROW)}" for row in each.first)]
    return "\n".join(lines)
