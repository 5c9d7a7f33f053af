"""Fitted weights as a file of profiles, with their evidence, and whether labels were used before.

A file names the labels that it was fitted to by a sketch: the least of the hashes of their traces.
The share of other labels that are among them is the share of their least hashes in the sketch.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import chain
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


def _hashes(trace_ids: Iterable[str]) -> list[str]:
    return sorted(sha256(trace.encode()).hexdigest()[:_DIGITS] for trace in trace_ids)


def sketch_of(trace_ids: Iterable[str]) -> list[str]:
    """Return the least hashes of labelled traces, ascending."""
    return _hashes(trace_ids)[:_HASHES]


def joined_sketch(*sketches: Sequence[str]) -> list[str]:
    """Return the sketch of the labels of all these sketches."""
    return sorted({*chain(*sketches)})[:_HASHES]


def sketch_in(path: Path) -> list[str]:
    """Return the sketch in a file of profiles; empty if none of these was fitted.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not in UTF-8.
    """
    found = _SKETCH.search(read_named(path))
    return found[1].split() if found else []


def reused_share(sketch: Sequence[str], trace_ids: Iterable[str]) -> float:
    """Return about which share of labelled traces is among those of a sketch."""
    own = _hashes(trace_ids)
    if len(sketch) == _HASHES:
        own = [each for each in own if each <= sketch[-1]]
    return sum(each in sketch for each in own) / len(own) if own else 0.0


def rounded(weights: Sequence[float]) -> list[float]:
    """Round weights to four decimals such that they still sum to 1."""
    parts = [weight * _PARTS for weight in weights]
    whole = [int(part) for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda place: whole[place] - parts[place])
    for place in by_rest[: round(sum(parts)) - sum(whole)]:
        whole[place] += 1
    return [part / _PARTS for part in whole]


def check_begin(
    versions: ProfileVersions, names: Iterable[str], begin: datetime | None, newest: datetime
) -> None:
    """Refuse a time at which fitted weights cannot begin; None: at all times.

    Args:
        versions: the weights so far.
        names: of the profiles that may be fitted.
        begin: the time.
        newest: the time of the newest trace, whose weights the fitted ones replace.

    Raises:
        KpBatchError: the weights to replace begin later.
    """
    current = versions.versions_at(newest)
    for name in sorted(names) if begin else ():
        replaced = current.get(name)
        if replaced and replaced.valid_from and begin and replaced.valid_from > begin:
            raise KpBatchError(
                f"weights of {printable(name)} begin later, from {replaced.date}; choose a later "
                "--from"
            )


def with_fitted(
    versions: ProfileVersions,
    fitted: Mapping[str, Sequence[float]],
    begin: datetime | None,
    newest: datetime,
) -> ProfileVersions:
    """Return profiles with fitted weights from a time on; see `check_begin`.

    Weights that begin after the newest trace stay.
    """
    changed: dict[str, tuple[Version, ...]] = {}
    for name, weights in fitted.items():
        own = Version(begin, WeightProfile(name, *rounded(weights)))
        before = [each for each in versions.versions.get(name, ()) if each.valid_from != begin]
        later = [each for each in before if each.valid_from and each.valid_from > (begin or newest)]
        earlier = [each for each in before if each not in later] if begin else []
        changed[name] = (*earlier, own, *later)
    return ProfileVersions({**versions.versions, **changed})


def profiles_text(
    profiles: Mapping[str, Any],
    evidence: Mapping[str, Iterable[str]],
    about: Iterable[str],
    sketch: Sequence[str],
) -> str:
    """Return the text of a file of profiles.

    Args:
        profiles: tables, as `ProfileVersions.as_json` returns them.
        evidence: lines about a profile, by its name.
        about: lines about all of them.
        sketch: of the labels that some of the weights are fitted to; empty: none is.
    """
    lines = [*map(_comment, about)]
    if sketch:
        lines.append(f"# sketch of labels: {' '.join(sketch)}\n")
    for name, tables in profiles.items():
        lines += ["\n", *map(_comment, evidence.get(name, ()))]
        lines += [text.removeprefix("\n") for text in toml_tables("profiles", {name: tables})]
    return "".join(lines)


def _comment(line: str) -> str:
    return f"# {printable(line)}\n"
