"""Fitted weights as a file of profiles, with their evidence, and whether labels were used before.

A file names the labels that it was fitted to by a sketch: the least of the hashes of their traces.
The share of other labels that are among them is the share of their least hashes in the sketch.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from kp_batch.errors import KpBatchError
from kp_batch.files import read_named
from kp_batch.operations.toml_text import toml_tables
from kp_batch.scoring.profiles import ProfileVersions, Version, WeightProfile
from kp_batch.text import printable

_HASHES, _DIGITS = 64, 12
_SKETCH = re.compile(r"^# sketch of labels:((?: [0-9a-f]{12})+)$", re.MULTILINE)
_PARTS = 10_000  # weights are written in these


def sketch_of(trace_ids: Iterable[str]) -> list[str]:
    """Return the hashes of labelled traces, ascending; a file keeps the first 64."""
    return sorted(sha256(trace.encode()).hexdigest()[:_DIGITS] for trace in trace_ids)


def reused_share(path: Path, trace_ids: Iterable[str]) -> float | None:
    """Return about which share of labelled traces a file of profiles was fitted to.

    None if the file does not exist, or was not made by `fit`.
    """
    with suppress(OSError, ValueError):
        if found := _SKETCH.search(read_named(path)):
            before = found[1].split()
            own = sketch_of(trace_ids)
            if len(before) == _HASHES:
                own = [each for each in own if each <= before[-1]]
            return sum(each in before for each in own) / len(own) if own else 0.0
    return None


def rounded(weights: Sequence[float]) -> list[float]:
    """Round weights to four decimals such that they still sum to 1."""
    parts = [weight * _PARTS for weight in weights]
    whole = [int(part) for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda place: whole[place] - parts[place])
    for place in by_rest[: round(sum(parts)) - sum(whole)]:
        whole[place] += 1
    return [part / _PARTS for part in whole]


def check_begin(versions: ProfileVersions, names: Iterable[str], begin: datetime | None) -> None:
    """Refuse a time at which fitted weights cannot begin; None: at all times.

    Raises:
        KpBatchError: other weights of such a name begin later.
    """
    for name in sorted(names) if begin else ():
        before = versions.versions.get(name, ())
        if later := [each for each in before if begin and (each.valid_from or begin) > begin]:
            raise KpBatchError(
                f"weights of {printable(name)} begin later, from {later[-1].date}; choose a later "
                "--from"
            )


def with_fitted(
    versions: ProfileVersions, fitted: Mapping[str, Sequence[float]], begin: datetime | None
) -> ProfileVersions:
    """Return profiles with fitted weights from a time on; None: at all times."""
    changed: dict[str, tuple[Version, ...]] = {}
    for name, weights in fitted.items():
        own = Version(begin, WeightProfile(name, *rounded(weights)))
        before = versions.versions.get(name, ()) if begin else ()
        kept = (each for each in before if each.valid_from != begin)
        changed[name] = (*kept, own)
    return ProfileVersions({**versions.versions, **changed})


def profiles_text(
    profiles: Mapping[str, Any],
    evidence: Mapping[str, Iterable[str]],
    about: Iterable[str],
    trace_ids: Iterable[str],
) -> str:
    """Return the text of a file of profiles.

    Args:
        profiles: tables, as `ProfileVersions.as_json` returns them.
        evidence: lines about a profile, by its name.
        about: lines about all of them.
        trace_ids: the traces to whose labels some of the weights are fitted; empty: none is.
    """
    sketch = " ".join(sketch_of(trace_ids)[:_HASHES])
    lines = [*map(_comment, about), *([f"# sketch of labels: {sketch}\n"] if sketch else [])]
    for name, tables in profiles.items():
        lines += ["\n", *map(_comment, evidence.get(name, ()))]
        lines += [text.removeprefix("\n") for text in toml_tables("profiles", {name: tables})]
    return "".join(lines)


def _comment(line: str) -> str:
    return f"# {printable(line)}\n"
