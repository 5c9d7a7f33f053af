from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kp_batch.config import RescoreConfig, format_ttl, parse_ttl

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "ttl"),
    [
        ("none", None),
        (" None ", None),
        ("1s", timedelta(seconds=1)),
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("7d", 7 * DAY),
        (" 7D ", 7 * DAY),
        ("007d", 7 * DAY),
    ],
)
def test_a_ttl_is_read(text: str, ttl: timedelta | None) -> None:
    assert parse_ttl(text) == ttl
    assert RescoreConfig(archive=("a",), warehouse=Path("w"), ttl=text).ttl == ttl


@pytest.mark.parametrize(
    "text",
    ["", "0s", "00h", "-1d", "1.5h", "90", "h", "1w", "1 h", "1h30m", "P1D", "٣h", "1234567890s"],
)
def test_what_is_no_ttl_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"s, m, h or d, got") as caught:
        parse_ttl(text)
    assert repr(text) in str(caught.value)
    with pytest.raises(ValidationError, match="a ttl is none"):
        RescoreConfig(archive=("a",), warehouse=Path("w"), ttl=text)


@pytest.mark.parametrize(
    ("ttl", "text"),
    [
        (None, "none"),
        (timedelta(seconds=59), "59s"),
        (timedelta(seconds=60), "1m"),
        (timedelta(minutes=90), "90m"),
        (timedelta(hours=24), "1d"),
        (timedelta(hours=25), "25h"),
        (timedelta(days=7, seconds=1), "604801s"),
    ],
)
def test_a_ttl_is_written_as_its_shortest_text(ttl: timedelta | None, text: str) -> None:
    assert format_ttl(ttl) == text


@given(st.integers(1, 999_999_999), st.sampled_from("smhd"))
def test_law_a_ttl_is_read_as_it_was_written(number: int, unit: str) -> None:
    ttl = parse_ttl(f"{number}{unit}")
    assert isinstance(ttl, timedelta)
    assert parse_ttl(format_ttl(ttl)) == ttl
    assert len(format_ttl(ttl)) <= len(f"{number}{unit}")


def test_defaults_are_the_live_engines() -> None:
    config = RescoreConfig(archive=("a", "b"), warehouse=Path("w"))
    assert config.model_dump() == {
        "archive": ("a", "b"),
        "warehouse": Path("w"),
        "embedder": "minilm",
        "cache_size": 1_000,
        "ttl": "none",
        "profiles": None,
        "threshold": 0.75,
        "since": None,
        "until": None,
        "prune": False,
        "max_reject_share": 0.05,
        "wait": False,
    }


def test_a_config_survives_json() -> None:
    config = RescoreConfig(
        archive=("a",),
        warehouse=Path("w"),
        ttl="90m",
        profiles=Path("p.toml"),
        threshold=1,
        since=date(2026, 1, 5),
        until=date(2026, 1, 6),
        prune=True,
    )
    assert RescoreConfig.model_validate_json(config.model_dump_json()) == config


def test_the_days_to_restate_are_in_order() -> None:
    day, next_day = date(2026, 1, 5), date(2026, 1, 6)
    for since, until in ((day, day), (day, next_day), (day, None), (None, day)):
        config = RescoreConfig(archive=("a",), warehouse=Path("w"), since=since, until=until)
        assert (config.since, config.until) == (since, until)
    with pytest.raises(ValidationError, match="--since 2026-01-06 is after --until 2026-01-05"):
        RescoreConfig(archive=("a",), warehouse=Path("w"), since=next_day, until=day)


def test_a_config_is_frozen() -> None:
    config = RescoreConfig(archive=("a",), warehouse=Path("w"))
    with pytest.raises(ValidationError, match="frozen"):
        config.threshold = 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"archive": ()},
        {"archive": "a"},
        {"embedder": ""},
        {"cache_size": 0},
        {"cache_size": 1.5},
        {"threshold": -0.01},
        {"threshold": 1.01},
        {"threshold": float("nan")},
        {"since": "2026-02-30"},
        {"until": "yesterday"},
        {"prune": 2},
        {"max_reject_share": -0.01},
        {"max_reject_share": 1.01},
        {"max_reject_share": float("nan")},
        {"cachesize": 10},
    ],
    ids=str,
)
def test_what_is_out_of_range_or_unknown_is_refused(change: dict[str, Any]) -> None:
    given_values = {"archive": ("a",), "warehouse": Path("w")} | change
    with pytest.raises(ValidationError, match=next(iter(change))):
        RescoreConfig(**given_values)
