"""Fitted weights as a file of profiles, with their evidence, and whether labels were used before.

A file names the labels that it was fitted to by a sketch: the 1,024 least hashes of their traces.
The share of other labels that are among them is the share of their least hashes in the sketch.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from kp_batch.errors import KpBatchError
from kp_batch.files import read_named, writing_to_named
from kp_batch.operations.toml_text import toml_tables
from kp_batch.scoring.profiles import ProfileVersions, Version, WeightProfile
from kp_batch.text import printable

_TITLE = "# Profiles of kp-batch fit"
_HASHES, _DIGITS, _IN_LINE = 1_024, 8, 11
_SKETCH = re.compile(r"^# sketch of labels:\n((?:#(?: [0-9a-f]{8})+\n)+)", re.MULTILINE)
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
    return found[1].replace("#", "").split() if found else []


def reused_share(sketch: Sequence[str], trace_ids: Iterable[str]) -> float:
    """Return about which share of labelled traces is among those of a sketch."""
    own, known = _hashes(trace_ids), {*sketch}
    if len(sketch) == _HASHES:
        own = [each for each in own if each <= sketch[-1]]
    return sum(each in known for each in own) / len(own) if own else 0.0


def check_profiles_file(output: Path) -> None:
    """Refuse a file that may not be replaced.

    Raises:
        KpBatchError: its name does not end with .toml, or it exists and is not of `fit`.
    """
    name = printable(str(output))
    if output.suffix.lower() != ".toml":
        raise KpBatchError(f"{name} does not end with .toml; name such a file")
    with writing_to_named(output):
        is_another = output.exists() and not output.is_dir() and not _is_of_fit(output)
    if is_another:
        raise KpBatchError(f"{name} exists, and kp-batch fit did not write it; name another file")


def _is_of_fit(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return path.is_file() and read_named(path).startswith(_TITLE)
    return False


def rounded(weights: Sequence[float]) -> list[float]:
    """Round weights to four decimals such that they still sum to 1."""
    parts = [weight * _PARTS for weight in weights]
    whole = [int(part) for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda place: whole[place] - parts[place])
    for place in by_rest[: round(sum(parts)) - sum(whole)]:
        whole[place] += 1
    return [part / _PARTS for part in whole]


def check_begin(
    versions: ProfileVersions, names: Collection[str], begin: datetime | None, newest: datetime
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
    if begin is None:
        return
    for name, replaced in sorted(versions.versions_at(newest).items()):
        if name in names and replaced.valid_from and replaced.valid_from > begin:
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
    lines = [f"{_TITLE}\n", *map(_comment, about)]
    for name, tables in profiles.items():
        lines += ["\n", *map(_comment, evidence.get(name, ()))]
        lines += [text.removeprefix("\n") for text in toml_tables("profiles", {name: tables})]
    if sketch:
        lines.append("\n# sketch of labels:\n")
    for first in range(0, len(sketch), _IN_LINE):
        lines.append(f"# {' '.join(sketch[first : first + _IN_LINE])}\n")
    return "".join(lines)


def _comment(line: str) -> str:
    return f"# {printable(line)}\n"
