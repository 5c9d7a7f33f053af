"""The values of a sweep: the options of `sweep`, and its keywords in Python."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from kp_batch.settings import CacheBy, CacheSize, Duration, Metavar, SettingsModel, Threshold


def _each(values: Any) -> list[Any]:
    """Return the values of a setting, given as one value, a list, or a text with commas."""
    several = values if isinstance(values, (list, tuple)) else [values]
    lists = [each.split(",") if isinstance(each, str) else [each] for each in several]
    return [each.strip() if isinstance(each, str) else each for own in lists for each in own]


def _number(value: Any) -> Any:
    is_number = isinstance(value, str) and value.isascii() and value.isdigit()
    return int(value) if is_number else value


_SEVERAL = BeforeValidator(_each)
_Size = Annotated[CacheSize, BeforeValidator(_number)]
_CacheBy = Annotated[CacheBy, BeforeValidator(lambda names: () if names is None else names)]


class SweepValues(SettingsModel):
    """The settings whose combinations are compared; those without a value stay as they are."""

    cache_by: Annotated[tuple[_CacheBy, ...], _SEVERAL, Metavar("NAME,...")] = Field(
        (), description="Which traces share a cache, such as none,agent_id,agent_id+host."
    )
    cache_size: Annotated[tuple[_Size, ...], _SEVERAL, Metavar("SIZE,...")] = Field(
        (), description="How many vectors a cache holds, such as 200,1000."
    )
    ttl: Annotated[tuple[Duration, ...], _SEVERAL, Metavar("TTL,...")] = Field(
        (), description="How long a vector stays in a cache, such as none,12h,7d."
    )
    threshold: Annotated[tuple[Threshold, ...], _SEVERAL, Metavar("SCORE,...")] = Field(
        (), description="Thresholds, such as 0.7,0.75."
    )
