"""Weight profiles: how much each dimension counts, by domain."""

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import ProfileError
from kp_batch.text import number

# Raised with any change to the composite or to the effect of an override: every profile_id bears
# it.
SCORING_VERSION = 1
DEFAULT = "default"
_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True)
class WeightProfile:
    """The weights of one profile: each in 0..1, their sum 1 within 1e-9."""

    name: str
    complexity: float
    novelty: float
    tool_diversity: float
    outcome_confidence: float

    @property
    def profile_id(self) -> str:
        """Names the profile, its exact weights and this version of the formula."""
        digest = hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()
        return f"{self.name}-{digest[:12]}-v{SCORING_VERSION}"


def load_profiles(path: Path | str | None = None) -> dict[str, WeightProfile]:
    """Load the five built-in profiles, and merge those of a TOML file over them.

    Args:
        path: a file of tables `[profiles.NAME]`, each with the four weights; None for the built-in
            profiles alone.

    Returns:
        The profiles by name.

    Raises:
        ProfileError: the file is missing, unreadable or has faults; the message lists all of them.
    """
    built_in = files("kp_batch.scoring").joinpath("profiles.toml").read_text("utf-8")
    profiles = _parsed(tomllib.loads(built_in), "profiles.toml")
    if path is None:
        return profiles
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProfileError(f"the profiles file {path} cannot be read: {reason}") from error
    return profiles | _parsed(content, str(path))


def parse_profiles(weights: Mapping[str, Any], source: str) -> dict[str, WeightProfile]:
    """Read profiles from their weights, by the names of both, or take them as they are.

    Args:
        weights: of each profile, see `weights_of`.
        source: where they come from, for the message.

    Raises:
        ProfileError: they have faults; the message lists all of them.
    """
    plain = {
        name: weights_of({name: each})[name] if isinstance(each, WeightProfile) else each
        for name, each in weights.items()
    }
    return _parsed({"profiles": plain}, source)


def weights_of(profiles: Mapping[str, WeightProfile]) -> dict[str, dict[str, float]]:
    """The four weights of each profile, by the names of both."""
    return {
        name: {dimension: getattr(each, dimension) for dimension in DIMENSIONS}
        for name, each in profiles.items()
    }


def _parsed(content: Mapping[str, Any], path: str) -> dict[str, WeightProfile]:
    faults = list(_faults(content))
    if faults:
        raise ProfileError(
            f"the profiles file {path} has {number(len(faults), 'fault')}: {'; '.join(faults)}"
        )
    return {
        name: WeightProfile(name, *(float(weights[dimension]) for dimension in DIMENSIONS))
        for name, weights in content["profiles"].items()
    }


def _faults(content: Mapping[str, Any]) -> Iterator[str]:
    """Every fault of a parsed file."""
    for key in sorted(content.keys() - {"profiles"}):
        yield f"unknown key {key!r} (profiles stand in [profiles.NAME])"
    profiles = content.get("profiles")
    if not isinstance(profiles, dict) or not profiles:
        yield "no [profiles.NAME] table"
        return
    for name, weights in cast("dict[str, Any]", profiles).items():
        if not name:
            yield "a profile without a name"
        if isinstance(weights, dict):
            yield from _weight_faults(name, cast("dict[str, Any]", weights))
        else:
            yield f"{name}: expected a table of four weights, got {weights!r}"


def _weight_faults(name: str, weights: dict[str, Any]) -> Iterator[str]:
    for key in sorted(weights.keys() - set(DIMENSIONS)):
        yield f"{name}: unknown key {key!r}"
    for dimension in DIMENSIONS:
        if dimension not in weights:
            yield f"{name}: {dimension} is missing"
        elif not _is_weight(weights[dimension]):
            yield f"{name}: {dimension} is a number from 0 to 1, got {weights[dimension]!r}"
    if all(_is_weight(weights.get(dimension)) for dimension in DIMENSIONS):
        total = math.fsum(weights[dimension] for dimension in DIMENSIONS)
        if abs(total - 1) > _SUM_TOLERANCE:
            yield f"{name}: the weights sum to {total:.12g}, not 1"


def _is_weight(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
