"""The settings that a warehouse keeps: their names, and the JSON values that each may have.

This is the contract between `config`, which takes names and bounds from here, and
`warehouse.manifest`, which reads nothing else. Texts are read more closely by who uses them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class Number:
    """The bounds of a number, which are allowed themselves."""

    least: int
    most: int
    is_whole: bool = False

    def allows(self, value: Any) -> bool:
        """Whether a value is a number within the bounds; true and false are none."""
        is_number = isinstance(value, int if self.is_whole else int | float)
        return is_number and not isinstance(value, bool) and self.least <= value <= self.most


PROJECT_FILE = "kp_batch.toml"  # in the current folder, unless another one is named
EMBEDDERS = ("minilm", "hashing", "none")  # all others are names of models
CACHE_SIZE = Number(1, 2**63 - 1, is_whole=True)
SHARE = Number(0, 1)


def is_text(value: Any) -> bool:
    """Whether a value is a text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Whether a value is true or false."""
    return isinstance(value, bool)


def are_all(values: Any, allowed: Callable[[str, Any], bool]) -> bool:
    """Whether a value is an object whose names and values are allowed."""
    return isinstance(values, dict) and all(
        allowed(name, value) for name, value in cast("dict[str, Any]", values).items()
    )


def _are_profiles(value: Any) -> bool:
    return are_all(
        value,
        lambda _, tables: all(
            are_all(table, lambda name, value: (is_text if name == "from" else SHARE.allows)(value))
            for table in (tables if isinstance(tables, list) else [tables])
        ),
    )


def _are_audits(value: Any) -> bool:
    return are_all(value, lambda _, audit: are_all(audit, lambda _, text: is_text(text)))


# The first done run fixes them, and a run that leaves one out takes it from the warehouse. All
# others are of one run alone.
SETTINGS: Mapping[str, Callable[[Any], bool]] = {
    "embedder": is_text,
    "precision": is_text,
    "cache_size": CACHE_SIZE.allows,
    "ttl": is_text,
    "cache_by": is_text,
    "profiles": _are_profiles,
    "threshold": SHARE.allows,
    "text": is_flag,
    "audits": _are_audits,
}


def wrong_setting(settings: Any) -> str | None:
    """What no warehouse keeps among settings, for a message; None if it keeps all of them."""
    if not isinstance(settings, dict):
        return f"settings {settings!r}"
    for name, value in cast("dict[str, Any]", settings).items():
        if name not in SETTINGS or not SETTINGS[name](value):
            return f"the setting {name} {value!r}"
    return None
