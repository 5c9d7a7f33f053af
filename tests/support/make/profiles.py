"""Profiles of tests, of which none has a date."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from kp_batch.scoring.profiles import (
    ProfileVersions,
    WeightProfile,
    load_profiles,
    parse_profiles,
)


def undated(path: Path | str | None = None) -> dict[str, WeightProfile]:
    """The profiles of a file, or the built-in ones, by name."""
    return load_profiles(path).at(datetime.now(UTC))


def always(profiles: Mapping[str, WeightProfile]) -> ProfileVersions:
    """These profiles at all times."""
    return parse_profiles(profiles, "a test")


LEGAL = """
[profiles.legal]
complexity = 0.25
novelty = 0.25
tool_diversity = 0.25
outcome_confidence = 0.25
"""
