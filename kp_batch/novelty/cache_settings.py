"""The cache's settings, and their text forms in configs and published rows."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from kp_batch.errors import SettingError
from kp_batch.text import format_duration, parse_duration

# Raise it with any change to `VectorCache` or `replay` that changes a result; part of each
# cache_id.
REPLAY_VERSION = 1

# Values of a trace by which caches may be split; they win over a path's key of the same name.
CACHE_COLUMNS = ("agent_id", "framework", "task_domain")
_NONE = "none"
_KEYS = 20  # that a message lists, at most
_KEY = re.compile(r"\w[\w.-]*")


@dataclass(frozen=True)
class CacheSettings:
    """The settings that decide which earlier vectors a trace is compared with.

    Args:
        size: capacity of the cache in vectors, at least 1.
        ttl: the time for which a vector stays in it, in whole seconds; None for no limit.
    """

    size: int
    ttl: timedelta | None

    @property
    def cache_id(self) -> str:
        """The id of these settings and this version of the replay: `fifo-SIZE-ttl-TTL-vVERSION`."""
        return f"fifo-{self.size}-ttl-{format_duration(self.ttl)}-v{REPLAY_VERSION}"

    @classmethod
    def of(cls, cache_id: str) -> "CacheSettings":
        """Read the settings from a cache_id of any version.

        Raises:
            ValueError: the text is not a cache_id.
        """
        match = re.fullmatch(r"fifo-([0-9]+)-ttl-(\w+)-v[0-9]+", cache_id)
        if not match:
            raise ValueError(f"a cache_id must be fifo-SIZE-ttl-TTL-vVERSION, got {cache_id!r}")
        return cls(int(match[1]), parse_duration(match[2]))


def parse_cache_by(text: str) -> tuple[str, ...]:
    """Parse the names of values by which caches are split: `none`, or names joined by +.

    Returns:
        The names in alphabetical order, each once.

    Raises:
        ValueError: a name has characters other than letters, digits and ._-, or `none` is not
            alone.
    """
    names = sorted({name.strip() for name in text.split("+")})
    if names == [_NONE]:
        return ()
    if not all(map(_KEY.fullmatch, names)) or _NONE in names:
        raise ValueError(
            "it must be none, or agent_id, framework, task_domain or a key of the files' paths, "
            f"with + between several, got {text!r}"
        )
    return tuple(names)


def check_cache_by(names: Iterable[str], keys: Collection[str], named: str = "--cache-by") -> None:
    """Refuse names for which no trace has a value.

    Args:
        names: as `parse_cache_by` returns them.
        keys: keys of the archive's folders, such as `host` of host=a.
        named: the setting's name, as its user wrote it.

    Raises:
        SettingError: a name is unknown; the message lists the known ones.
    """
    unknown = [name for name in names if name not in {*CACHE_COLUMNS, *keys}]
    if unknown:
        known = ", ".join([*CACHE_COLUMNS, *sorted(filter(_KEY.fullmatch, keys))[:_KEYS]])
        no_key = "" if keys else " (the archive has no folder such as host=a)"
        raise SettingError(
            f"{named}: there is no {' and no '.join(unknown)}; choose from {known}{no_key}"
        )


def format_cache_by(names: Sequence[str]) -> str:
    """Write names as `parse_cache_by` reads them."""
    return "+".join(names) or _NONE
