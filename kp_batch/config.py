"""What one run is told."""

import re
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_ttl(text: Any) -> Any:
    """A duration such as 90m, 12h or 7d as a timedelta, `none` as None.

    Raises:
        ValueError: it is neither.
    """
    if not isinstance(text, str):
        return text
    if text.strip().lower() == "none":
        return None
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text.strip().lower())
    if not match or int(match[1]) == 0:
        raise ValueError(f"a ttl is none, or a whole number with s, m, h or d, got {text!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def format_ttl(ttl: timedelta | None) -> str:
    """The shortest text that `parse_ttl` reads as this ttl."""
    if ttl is None:
        return "none"
    seconds = ttl // timedelta(seconds=1)
    sizes = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    return next(f"{seconds // size}{unit}" for unit, size in sizes if seconds % size == 0)


def _in_whole_seconds(ttl: timedelta | None) -> timedelta | None:
    if ttl is not None and (ttl <= timedelta(0) or ttl % timedelta(seconds=1)):
        raise ValueError(f"a ttl is a positive number of whole seconds, got {ttl}")
    return ttl


Ttl = Annotated[
    timedelta | None,
    BeforeValidator(parse_ttl),
    AfterValidator(_in_whole_seconds),
    PlainSerializer(format_ttl, return_type=str),
]


def _parse_day(text: Any) -> Any:
    try:
        return date.fromisoformat(text) if isinstance(text, str) else text
    except ValueError:
        raise ValueError(f"a day is written as 2026-01-31, got {text!r}") from None


Day = Annotated[date | None, BeforeValidator(_parse_day)]


class RescoreConfig(BaseModel):
    """The parameters of one run; Prefect shows them as a form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    archive: tuple[str, ...] = Field(
        min_length=1, description="Parquet or JSONL files, folders, globs or URLs."
    )
    warehouse: Path = Field(description="The folder of the tables; made where it is missing.")
    embedder: str = Field(
        "minilm", min_length=1, description="minilm, hashing, none, or any model's folder or id."
    )
    cache_size: int = Field(
        1_000, ge=1, strict=True, description="Vectors that the replay's cache holds."
    )
    ttl: Ttl = Field(None, description="Time to live in the cache: none, 90m, 12h, 7d.")
    profiles: Path | None = Field(None, description="A TOML file of weight profiles.")
    threshold: float = Field(0.75, ge=0, le=1, description="A score worth sharing.")
    since: Day = Field(None, description="Restate no day before this one.")
    until: Day = Field(None, description="Restate no day after this one.")
    prune: bool = Field(
        default=False, description="Remove the traces of files that are gone or unreadable."
    )
    max_reject_share: float = Field(
        0.05, ge=0, le=1, description="More rejected rows than this share fail the run."
    )
    wait: bool = Field(default=False, description="Wait while another run writes to the warehouse.")

    @model_validator(mode="after")
    def _in_order(self) -> "RescoreConfig":
        if self.since and self.until and self.since > self.until:
            raise ValueError(f"--since {self.since} is after --until {self.until}")
        return self
