"""Times as others write them: to microseconds in UTC, in the years from 1 to 9999."""

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ISO_8601 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]((?:[01][0-9]|2[0-3]):[0-5][0-9](?::(?:[0-5][0-9]|(60))(?:[.,][0-9]+)?)?)"
    r"\s?([Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?)?"
)


def time_of(text: object) -> datetime | None:
    """The time of a text such as 2026-01-05T08:00:00.123456789+02:00.

    A time without a zone is UTC, a date without a time its midnight. Digits finer than a
    microsecond are cut off. None of anything else.
    """
    found = ISO_8601.fullmatch(text) if isinstance(text, str) else None
    if not found:
        return None
    date, time, leap, zone = found.groups()
    if leap:  # which Python has not
        time = time.replace(":60", ":59")
    try:
        moment = datetime.fromisoformat(f"{date}T{time or '00:00'}{(zone or 'Z').upper()}")
        return moment.astimezone(UTC) + timedelta(seconds=1 if leap else 0)
    except (ValueError, OverflowError):  # no day of the calendar, or of another year
        return None


def sortable(text: object) -> str:
    """The time of a text, so that the order of texts is that of times; '' if it is none."""
    time = time_of(text)
    return time.isoformat(timespec="microseconds") if time else ""


def time_of_ns(nanoseconds: int) -> datetime | None:
    """The time so many nanoseconds after 1970, cut to microseconds; None if it is too far away."""
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1_000)
    except OverflowError:
        return None


def us_of(time: datetime) -> int:
    """How many microseconds after 1970 a time is."""
    return (time - _EPOCH) // timedelta(microseconds=1)
