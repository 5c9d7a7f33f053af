"""What computed the scores that a run left, from its row in `runs`."""

import json
from collections.abc import Mapping
from typing import Any

_FORMULAS = ("facts", "encoder", "replay", "scoring")


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
