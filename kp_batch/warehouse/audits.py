"""Audits: SQL that returns rows that must not exist, and the results."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from kp_batch.columns import Rows, cells
from kp_batch.errors import AuditError, SettingError
from kp_batch.faults import unknown_key
from kp_batch.files import read_toml
from kp_batch.html import Displayed
from kp_batch.rendering import Head, Part, Row, Table
from kp_batch.text import count_of, shortened

if TYPE_CHECKING:
    import polars as pl

Severity = Literal["error", "warn"]
_SEVERITIES = ("error", "warn")
_KEYS = ("sql", "severity")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_ROW = 200  # characters of a row in a message


@dataclass(frozen=True)
class Audit:
    """One audit."""

    sql: str  # a SELECT
    severity: Severity = "error"  # whether its rows fail the run or only warn


@dataclass(frozen=True)
class Audits:
    """The audits of a warehouse, by name; at first there are none."""

    by_name: Mapping[str, Audit]

    def as_json(self) -> dict[str, dict[str, str]]:
        """Return the audits as JSON, which `parse_audits` reads."""
        return {name: asdict(audit) for name, audit in self.by_name.items()}


@dataclass(frozen=True)
class AuditResult(Displayed):
    """The result of an audit."""

    name: str
    severity: Severity
    rows: int  # rows that must not exist; 0: it passes
    allowed: bool  # whether --allow-audit let it pass
    first: tuple[str, ...] = ()  # the first five rows, as JSON; not stored in `runs`
    digest: str = ""  # a digest of all rows, in any order

    @property
    def fails(self) -> bool:
        """Whether it fails a run."""
        return self.rows > 0 and self.severity == "error" and not self.allowed

    @property
    def state(self) -> Literal["passes", "allowed", "warns", "fails"]:
        """The outcome."""
        if not self.rows:
            return "passes"
        if self.allowed:
            return "allowed"
        return "fails" if self.fails else "warns"


class AuditRows(Rows):
    """The fields of `AuditResult`, and its state."""

    __slots__ = ()
    names = ("name", "severity", "rows", "allowed", "first", "digest", "state")


class AuditResults(Displayed, tuple[AuditResult, ...]):
    """The results of audits."""

    __slots__ = ()

    def to_polars(self) -> "pl.DataFrame":
        """A row for each audit, with the columns of `AuditRows`."""
        return _rows(self).to_polars()

    def _parts(self) -> Iterator[Part]:
        return results_parts(self)


def load_audits(path: Path | str) -> Audits:
    """Load the audits of a TOML file.

    Args:
        path: a file of tables `[audits.NAME]`, each with `sql` and optionally `severity`, error or
            warn.

    Raises:
        SettingError: the file is missing, unreadable or has faults; the message lists all of them.
    """
    _, content = read_toml(path, "the audits file", partial(SettingError, code="audits"))
    others = sorted(content.keys() - {"audits"})
    faults = [f"unknown key {key!r} (write audits as [audits.NAME])" for key in others]
    if not content.get("audits"):
        faults.append("no [audits.NAME] table")
    return parse_audits(content.get("audits", {}), f"the audits file {path}", faults)


def parse_audits(audits: Any, source: str, faults: Sequence[str] = ()) -> Audits:
    """Read audits from JSON values.

    Args:
        audits: the values that `Audits.as_json` returns.
        source: where they come from, for the message.
        faults: other faults of the source.

    Raises:
        SettingError: there are faults; the message lists all of them.
    """
    if messages := [*faults, *_faults(audits)]:
        message = f"{source} has {count_of(len(messages), 'fault')}: {'; '.join(messages)}"
        raise SettingError(message, code="audits")
    return Audits({name: Audit(**fields) for name, fields in audits.items()})


def _faults(audits: Any) -> Iterator[str]:
    if not isinstance(audits, Mapping):
        yield f"audits must be a table of audits, got {audits!r}"
        return
    for name, value in cast("Mapping[str, Any]", audits).items():
        if not _NAME.fullmatch(name):
            yield f"a name must consist of letters, digits, _ and -, got {name!r}"
        if not isinstance(value, Mapping):
            yield f"{name}: expected a table with sql, got {value!r}"
            continue
        audit = cast("Mapping[str, Any]", value)
        yield from (unknown_key(name, key, _KEYS) for key in sorted(audit.keys() - {*_KEYS}))
        if not isinstance(audit.get("sql"), str):
            yield f"{name}: sql is missing, or not a text"
        if (severity := audit.get("severity", "error")) not in _SEVERITIES:
            yield f"{name}: severity must be error or warn, got {severity!r}"


def refuse_failed(results: Sequence[AuditResult], consequence: str) -> None:
    """Raise an error if any audit fails.

    Raises:
        AuditError: it names all that fail, and ends with the consequence.
    """
    if failed := [result for result in results if result.fails]:
        raise AuditError(f"{failed_text(failed)}; {consequence}", tuple(results))


def failed_text(failed: Sequence[AuditResult]) -> str:
    """Say how many audits failed, and which."""
    names = ", ".join(f"{result.name} ({count_of(result.rows, 'row')})" for result in failed)
    return f"{count_of(len(failed), 'audit')} failed: {names}"


def warning_text(result: AuditResult) -> str:
    """Return the result of an audit that does not pass, on one line."""
    first = "; ".join(shortened(row, _ROW) for row in result.first)
    allowed = ", allowed this once" if result.allowed else ""
    return f"audit {result.name} found {count_of(result.rows, 'row')}{allowed}: {first}"


def audits_text(results: Sequence[AuditResult]) -> str:
    """Say how many audits pass, and which do not, on one line."""
    others = [f"{result.name} {result.state}" for result in results if result.rows]
    return ", ".join([f"{len(results) - len(others):,} of {len(results):,} pass", *others])


def audits_table(results: Sequence[AuditResult]) -> list[Row]:
    """Return the results of audits, a row for each."""
    return cells(_rows(results), "name", "state", "rows")


def _rows(results: Sequence[AuditResult]) -> AuditRows:
    return AuditRows({**vars(result), "state": result.state} for result in results)


def results_parts(results: Sequence[AuditResult]) -> Iterator[Part]:
    """Yield the results of audits for people, with the first rows of those that do not pass."""
    failing = [place for place, result in enumerate(results) if result.rows]
    yield Table(audits_table(results), marked=failing)
    for result in results:
        if result.first:
            yield from ("", Head(f"{result.name}:"))
            yield from (f"  {shortened(row, _ROW)}" for row in result.first)
