from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.novelty.cache_settings import REPLAY_VERSION, CacheSettings
from kp_batch.text import format_duration, parse_duration

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
        ("1234567890s", timedelta(seconds=1_234_567_890)),
        ("999999999d", timedelta(days=timedelta.max.days)),
    ],
)
def test_a_ttl_is_read(text: str, ttl: timedelta | None) -> None:
    assert parse_duration(text) == ttl


@pytest.mark.parametrize(
    "text",
    ["", "0s", "00h", "-1d", "1.5h", "90", "h", "1w", "1 h", "1h30m", "P1D", "٣h", f"{10**18}s"],
)
def test_a_wrong_ttl_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"s, m, h or d, such as 90m, got") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["1000000000d", "100000000000000000h"])
def test_a_ttl_beyond_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"a duration must be at most 999999999d, got '{text}'"):
        parse_duration(text)


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
        (timedelta.max - timedelta(microseconds=999_999), "86399999999999s"),
    ],
)
def test_a_ttl_is_written_as_its_shortest_text(ttl: timedelta | None, text: str) -> None:
    assert format_duration(ttl) == text
    assert parse_duration(text) == ttl


@given(st.integers(1, 999_999_999), st.sampled_from("smhd"))
def test_law_a_ttl_is_read_as_it_was_written(number: int, unit: str) -> None:
    ttl = parse_duration(f"{number}{unit}")
    assert isinstance(ttl, timedelta)
    assert parse_duration(format_duration(ttl)) == ttl
    assert len(format_duration(ttl)) <= len(f"{number}{unit}")


@pytest.mark.parametrize(
    ("cache", "cache_id"),
    [
        (CacheSettings(1_000, None), "fifo-1000-ttl-none-v1"),
        (CacheSettings(1, 7 * DAY), "fifo-1-ttl-7d-v1"),
        (CacheSettings(250, timedelta(minutes=90)), "fifo-250-ttl-90m-v1"),
    ],
)
def test_a_cache_id_names_size_ttl_and_version(cache: CacheSettings, cache_id: str) -> None:
    assert cache.cache_id == cache_id
    assert CacheSettings.of(cache_id) == cache


@given(st.integers(1, 10**9), st.none() | st.integers(1, 999_999_999))
def test_law_settings_are_read_as_their_cache_id_names_them(size: int, ttl: int | None) -> None:
    cache = CacheSettings(size, None if ttl is None else timedelta(seconds=ttl))
    assert CacheSettings.of(cache.cache_id) == cache


def test_a_cache_id_of_another_version_is_read() -> None:
    assert CacheSettings.of(f"fifo-10-ttl-2h-v{REPLAY_VERSION + 1}") == CacheSettings(10, DAY / 12)


@pytest.mark.parametrize(
    "text",
    ["none", "", "fifo-10-ttl-2h", "fifo--ttl-2h-v1", "fifo-10-ttl-2w-v1", "lru-1-ttl-1d-v1"],
)
def test_a_wrong_cache_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="got "):
        CacheSettings.of(text)
