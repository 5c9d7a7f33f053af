"""The cache's settings, and the text forms under which configs and published rows name them."""

import re
from dataclasses import dataclass
from datetime import timedelta

# Raised with any change to `VectorCache` or `replay` that changes a result: every cache_id bears
# it.
REPLAY_VERSION = 1

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class CacheSettings:
    """What decides which earlier vectors a trace meets.

    Args:
        size: vectors that the cache holds, at least 1.
        ttl: the time that a vector stays in it, in whole seconds; None for no limit.
    """

    size: int
    ttl: timedelta | None

    @property
    def cache_id(self) -> str:
        """Names these settings and this version of the replay: `fifo-SIZE-ttl-TTL-vVERSION`."""
        return f"fifo-{self.size}-ttl-{format_ttl(self.ttl)}-v{REPLAY_VERSION}"

    @classmethod
    def of(cls, cache_id: str) -> "CacheSettings":
        """Read the settings from a cache_id of any version.

        Raises:
            ValueError: the text is no cache_id.
        """
        match = re.fullmatch(r"fifo-([0-9]+)-ttl-(\w+)-v[0-9]+", cache_id)
        if not match:
            raise ValueError(f"a cache_id is fifo-SIZE-ttl-TTL-vVERSION, got {cache_id!r}")
        return cls(int(match[1]), parse_ttl(match[2]))


def parse_ttl(text: str) -> timedelta | None:
    """Read a duration such as 90m, 12h or 7d; `none` gives None.

    Raises:
        ValueError: the text is neither.
    """
    lowered = text.strip().lower()
    if lowered == "none":
        return None
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", lowered)
    if not match or int(match[1]) == 0:
        raise ValueError(f"a ttl is none, or a whole number with s, m, h or d, got {text!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def format_ttl(ttl: timedelta | None) -> str:
    """Write a ttl of whole seconds as the shortest text that `parse_ttl` reads."""
    if ttl is None:
        return "none"
    seconds = ttl // timedelta(seconds=1)
    sizes = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    return next(f"{seconds // size}{unit}" for unit, size in sizes if seconds % size == 0)
