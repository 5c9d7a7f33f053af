"""The types of settings: how each is read from text, and written as JSON."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from kp_batch.audits import Audits as AuditSet
from kp_batch.audits import load_audits, parse_audits
from kp_batch.novelty.settings import format_cache_by, format_ttl, parse_cache_by, parse_ttl
from kp_batch.scoring.profiles import ProfileVersions, load_profiles, parse_profiles

NONE = "none"  # a value, unlike what is left out
BUILT_IN = "default"  # stands for the built-in profiles
_EMBEDDERS = ("minilm", "hashing", NONE)


def _from_anywhere(embedder: str) -> str:
    """Name a model's folder in full: the next run may start elsewhere."""
    is_folder = embedder not in _EMBEDDERS and Path(embedder).is_dir()
    return str(Path(embedder).absolute()) if is_folder else embedder


def _parse_ttl(value: Any) -> Any:
    return parse_ttl(value) if isinstance(value, str) else value


def _in_whole_seconds(ttl: timedelta | None) -> timedelta | None:
    if ttl is not None and (ttl <= timedelta(0) or ttl % timedelta(seconds=1)):
        raise ValueError(f"a ttl is a positive number of whole seconds, got {ttl}")
    return ttl


def _parse_cache_by(value: Any) -> Any:
    return parse_cache_by(value) if isinstance(value, str) else value


def _parse_profiles(value: Any) -> Any:
    """Load a file or the built-in profiles, or take the profiles themselves."""
    if isinstance(value, str | Path):
        return load_profiles(None if str(value) == BUILT_IN else value)
    if isinstance(value, Mapping):
        return parse_profiles(cast("Mapping[str, Any]", value), "that was given")
    return value


def _parse_audits(value: Any) -> Any:
    """Load a file, take the audits themselves, or none."""
    if isinstance(value, str | Path):
        return AuditSet({}) if str(value) == NONE else load_audits(value)
    if isinstance(value, Mapping):
        return parse_audits(cast("Mapping[str, Any]", value), "that was given")
    return value


def parse_limit(value: Any) -> str:
    """Read a limit: a number, or a share of all in percent."""
    match = re.fullmatch(r"([0-9]{1,9})(%?)", str(value))
    if not match or (match[2] and int(match[1]) > 100):
        raise ValueError(f"a limit is a number such as 5, or a share such as 5%, got {value!r}")
    return match[0]


def is_beyond(limit: str, part: int, whole: int) -> bool:
    """Whether a part of a whole is more than a `Limit`, which is a number or a share."""
    most = int(limit.removesuffix("%")) * (whole if limit.endswith("%") else 100)
    return 100 * part > most


Embedder = Annotated[str, AfterValidator(_from_anywhere)]
Ttl = Annotated[
    timedelta | None,
    BeforeValidator(_parse_ttl),
    AfterValidator(_in_whole_seconds),
    PlainSerializer(format_ttl, return_type=str),
    WithJsonSchema({"type": "string"}),
]
CacheBy = Annotated[
    tuple[str, ...],
    BeforeValidator(_parse_cache_by),
    PlainSerializer(format_cache_by, return_type=str),
    WithJsonSchema({"type": "string"}),
]
Profiles = Annotated[
    ProfileVersions,
    BeforeValidator(_parse_profiles),
    PlainSerializer(ProfileVersions.as_json),
    WithJsonSchema({"type": "string"}),
]
Audits = Annotated[
    AuditSet,
    BeforeValidator(_parse_audits),
    PlainSerializer(AuditSet.as_json),
    WithJsonSchema({"type": "string"}),
]
Limit = Annotated[
    str | None,
    BeforeValidator(lambda value: value if value is None else parse_limit(value)),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
]
