"""What computed the scores that a run left, from its row in `runs`."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

_FORMULAS = ("facts", "encoder", "replay", "scoring")
_SETTINGS = ("cache_size", "ttl", "threshold")


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Why the scores of two runs do not compare: other formulas, or another encoder.

    Args:
        first: a row of `runs`, of which versions and fingerprints count.
        second: another.

    Returns:
        A few words for each difference; nothing where they compare.
    """
    versions, later = (json.loads(run["versions"]) for run in (first, second))
    differing = [
        f"{name} {versions[name]} and {later[name]}"
        for name in _FORMULAS
        if versions[name] != later[name]
    ]
    encoders = [", ".join(json.loads(run["fingerprints"])["encoder_id"]) for run in (first, second)]
    if encoders[0] != encoders[1]:
        differing.append(f"encoders {encoders[0]} and {encoders[1]}")
    return differing


def changed_settings(
    first: Mapping[str, Any], second: Mapping[str, Any], domains: Iterable[str | None]
) -> list[str]:
    """What was asked for otherwise in the second of two runs: the cache, the threshold, weights.

    Args:
        first: a row of `runs`, of which config and fingerprints count.
        second: another.
        domains: those that both runs scored. A profile of such a name that the scores of only one
            run bear was added or removed; another one may have come or gone with its domain.

    Returns:
        A few words for each setting that differs.
    """
    settings, later = (json.loads(run["config"]) for run in (first, second))
    changed = [
        f"{name.replace('_', ' ')} {settings[name]} \N{RIGHTWARDS ARROW} {later[name]}"
        for name in _SETTINGS
        if settings[name] != later[name]
    ]
    before, after = (_profiles(run) for run in (first, second))
    in_both = before.keys() & after.keys()
    in_one = (before.keys() ^ after.keys()) & set(domains)
    other = [name for name in in_both | in_one if before.get(name) != after.get(name)]
    return [*changed, *(f"weights of {name}" for name in sorted(other))]


def _profiles(run: Mapping[str, Any]) -> dict[str, set[str]]:
    """The ids of the profiles that the scores bear, by their names."""
    found: dict[str, set[str]] = {}
    for profile_id in json.loads(run["fingerprints"])["profile_id"]:
        found.setdefault(profile_id.rsplit("-", 2)[0], set()).add(profile_id)
    return found
