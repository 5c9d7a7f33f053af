"""Times as systems write them."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(value: object) -> datetime | None:
    """A time of ISO 8601, or a datetime, in UTC and microseconds; without a zone it is UTC.

    None if it is neither.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def time_of_ns(nanoseconds: int) -> datetime:
    """The time so many nanoseconds after 1970, truncated to microseconds."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1_000)


def ns_of(time: datetime) -> int:
    """How many nanoseconds after 1970 a time is."""
    return (time - _EPOCH) // timedelta(microseconds=1) * 1_000
