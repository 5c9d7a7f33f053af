"""The settings that a manifest keeps, as readers check them: their names, and values in JSON.

The models in `settings` describe them, and runs read their own by these models. Readers start
faster without pydantic, so they use these types and bounds, which the models share.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from kp_batch.json_values import SHARE, Bounds, are_all, is_flag, is_text

CACHE_SIZE = Bounds(1, 2**63 - 1, is_whole=True)


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


KEPT: Mapping[str, Callable[[Any], bool]] = {
    "embedder": is_text,
    "precision": is_text,
    "cache_size": CACHE_SIZE.allows,
    "ttl": is_text,
    "cache_by": is_text,
    "threshold": SHARE.allows,
    "trace_text": is_flag,
    "reject_text": is_flag,
    "profiles": _are_profiles,
    "audits": _are_audits,
}

# What a warehouse means that lacks a setting, because it is older than the setting.
_ADDED: Mapping[str, Any] = {"reject_text": True}


def complete(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a warehouse, with those that it is too old to have.

    Before the first run there are none.
    """
    lacking = _ADDED.keys() - settings.keys() if settings else ()
    return {**settings, **{name: _ADDED[name] for name in lacking}}


def wrong_setting(settings: Any) -> str | None:
    """Return what no warehouse keeps among settings, for a message; None if all is right."""
    if not isinstance(settings, dict):
        return f"settings {settings!r}"
    for name, value in cast("dict[str, Any]", settings).items():
        if name not in KEPT or not KEPT[name](value):
            return f"the setting {name} {value!r}"
    return None
