"""Make texts safe for terminals, lay them out for people, and parse values that people write."""

import codecs
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import IO
from unicodedata import category, east_asian_width

# No blanks: they collapse on pages, and are narrower than bars in many fonts.
_BARS = "▁▂▃▄▅▆▇█"
_DRAWN = _BARS + "─│┌┬┐├┼┤└┴┘…"
_PLAIN = str.maketrans(_DRAWN, ".:-=+*#@" + "-|" + "+" * 9 + "~")
WITH_ESCAPES = "kp_batch.with_escapes"
DOMAIN = 40  # characters shown of a domain in summaries and plans
_VALUE = 30  # characters shown of a value in a cache's name
_NO_DURATION = "none"
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
# The only markup in a code span: the end of the span and, in a table, of the cell.
_ESCAPED = str.maketrans({sign: f"\\x{ord(sign):02x}" for sign in "`|"})
_MOST_SECONDS = 1e11  # seconds after 1970: the year 5138
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ISO_8601 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]((?:[01][0-9]|2[0-3]):[0-5][0-9](?::(?:[0-5][0-9]|(60))(?:[.,][0-9]+)?)?)"
    r"\s?([Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?)?"
)


def printable(text: str) -> str:
    """Write out all control characters of a text, so that terminals do not obey them."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def printable_lines(text: str) -> str:
    """Write out all control characters of a text except line ends."""
    return "\n".join(map(printable, text.split("\n")))


class Terminal:
    """A stream to a terminal that writes out control characters, so that it does not obey them."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def write(self, text: str) -> int:
        """See `IO`."""
        return self._out.write(printable_lines(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """See `IO`."""
        for line in lines:
            self.write(line)


def encodable(text: str) -> str:
    """Return a text without lone surrogates, which JSON allows and UTF-8 does not."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def drawn(text: str, out: IO[str]) -> str:
    """Return a text for people, drawn with letters that an output supports."""
    try:
        _DRAWN.encode(getattr(out, "encoding", None) or "utf-8")  # a StringIO has any
    except UnicodeEncodeError:
        return text.translate(_PLAIN)
    return text


def _with_escapes(error: UnicodeError) -> tuple[str, int]:
    """Escape letters that an encoding lacks as JSON does, so that JSON stays the same."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(WITH_ESCAPES, _with_escapes)


def one_line(text: str) -> str:
    """Put a text on one line, with one space for each run of white space."""
    return " ".join(text.split())


def shortened(text: str, length: int) -> str:
    """Cut a text to at most `length` printable characters, with an ellipsis for the rest."""
    shown = printable(text[: length + 1])
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"


def count_of(count: int, noun: str) -> str:
    """Write a count with a noun, in the singular or the plural."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_of(count: int) -> str:
    """Write a number of bytes."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def be(count: int) -> str:
    """Return the verb that follows a count."""
    return "is" if count == 1 else "are"


def some_of(words: Iterable[str], number: int) -> str:
    """Return the first words, and how many more there are."""
    named = [*words]
    more = number - len(named)
    return ", ".join([*named, *([f"{more:,} more"] if more > 0 else [])])


def ten_of(words: Iterable[str]) -> str:
    """Return the first ten words, and how many more there are."""
    listed = [*words]
    return some_of(listed[:10], len(listed))


def unknown_of(named: str, number: int, all_: int, noun: str) -> str:
    """Return the sentence about unknown ids: a few of them, how many, and of how many."""
    count = f"{number:,} of {count_of(all_, noun)} {be(number)}"
    return f"{count} unknown: {named}; nothing was changed"


def age(seconds: float) -> str:
    """Write a duration in its largest unit."""
    if not seconds:
        return "0 s"
    return next(
        (f"{seconds / size:.1f} {unit}" for size, unit in _UNITS if seconds >= size), "under 1 s"
    )


def moment_text(text: str) -> str:
    """Write a time in ISO 8601 and UTC, to the second."""
    return f"{text[:10]} {text[11:19]} UTC"


def code(text: str) -> str:
    """Write text as a code span of markdown, in which no markup has an effect."""
    return f"`{text.translate(_ESCAPED)}`"


def bar_line(counts: list[int]) -> str:
    """Draw counts as a line of bars: the largest has full height, and only 0 the lowest."""
    most = max(counts, default=0)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most) if most else 0] for count in counts)


def aligned(rows: list[dict[str, str]]) -> list[str]:
    """Lay out a table as lines, its head first; only the first column is aligned left."""
    if not rows:
        return []
    cells = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = ([padded(row[0], widths[0]), *map(_padded_left, row[1:], widths[1:])] for row in cells)
    return ["  " + "  ".join(line).rstrip() for line in lines]


def width(text: str) -> int:
    """Return how many terminal columns a printable text takes: two for a wide character."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def padded(text: str, columns: int) -> str:
    """Pad a text with blanks on the right, to at least so many columns."""
    return text + " " * (columns - width(text))


def _padded_left(text: str, columns: int) -> str:
    return " " * (columns - width(text)) + text


def _columns(sign: str) -> int:
    if category(sign) in {"Mn", "Me"}:  # a mark on the character before
        return 0
    return 2 if east_asian_width(sign) in "WF" else 1


def group_suffix(cache_group: str | None) -> str:
    """Return what follows "the cache": " of agent_id a, no host"; empty if all traces share one."""
    if cache_group is None:
        return ""
    values: dict[str, str | None] = json.loads(cache_group)
    pairs = (
        f"no {name}" if value is None else f"{name} {shortened(value, _VALUE)}"
        for name, value in values.items()
    )
    return printable(f" of {', '.join(pairs)}")


def time_of(text: object) -> datetime | None:
    """Return the time of a text such as 2026-01-05T08:00:00.123456789+02:00; None if it is not one.

    A time without a zone is UTC; a date without a time is its midnight. Digits finer than a
    microsecond are cut off.
    """
    match = ISO_8601.fullmatch(text) if isinstance(text, str) else None
    if not match:
        return None
    date, time, leap, zone = match.groups()
    if leap:  # Python has no second 60
        time = time.replace(":60", ":59")
    try:
        moment = datetime.fromisoformat(f"{date}T{time or '00:00'}{(zone or 'Z').upper()}")
        return moment.astimezone(UTC) + timedelta(seconds=1 if leap else 0)
    except (ValueError, OverflowError):  # no such day, or a year out of range
        return None


def sortable(text: object) -> str:
    """Return a text's time in a form that sorts in order of time; '' if it is not a time."""
    time = time_of(text)
    return time.isoformat(timespec="microseconds") if time else ""


def time_of_ns(nanoseconds: int) -> datetime | None:
    """Return the time so many nanoseconds after 1970, cut to microseconds; None if out of range."""
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1_000)
    except OverflowError:
        return None


def time_of_number(number: object) -> datetime | None:
    """Return the time of a number or its text: seconds after 1970, or milliseconds if large."""
    with suppress(ValueError, TypeError, OverflowError):
        count = float(number)  # type: ignore[arg-type]
        seconds = count if abs(count) < _MOST_SECONDS else count / 1_000
        return time_of_ns(round(seconds * 1e6) * 1_000)
    return None


def in_utc(time: datetime) -> datetime:
    """Return a time in UTC; one without a zone is taken to be UTC."""
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def us_of(time: datetime) -> int:
    """Return a time in microseconds after 1970."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def parse_duration(text: str) -> timedelta | None:
    """Parse a duration such as 90m, 12h or 7d; `none` gives None.

    Raises:
        ValueError: the text is neither.
    """
    lowered = text.strip().lower()
    if lowered == _NO_DURATION:
        return None
    match = re.fullmatch(r"([0-9]{1,18})([smhd])", lowered)
    if not match or int(match[1]) == 0:
        wanted = "none, or a whole number from 1 on with s, m, h or d, such as 90m"
        raise ValueError(f"a duration must be {wanted}, got {text!r}")
    try:
        return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
    except OverflowError as error:
        raise ValueError(
            f"a duration must be at most {timedelta.max.days}d, got {text!r}"
        ) from error


def parse_keep(text: str) -> timedelta:
    """Parse how long earlier runs stay readable, such as 12h or 30d.

    Raises:
        ValueError: the text is no such time, or could mean minutes or months.
    """
    if re.fullmatch(r"\s*[0-9]+\s*m\s*", text, re.IGNORECASE):
        raise ValueError(
            f"{text!r} may be minutes or months; write hours or days, such as 12h or 30d"
        )
    with suppress(ValueError):
        if period := parse_duration(text):
            return period
    raise ValueError(f"{text!r} is not a time; write one such as 12h or 30d")


def parse_count(value: str | int) -> int:
    """Parse a whole number from 1 on.

    Raises:
        ValueError: the text is not one.
    """
    with suppress(ValueError):
        if (count := int(value)) >= 1:
            return count
    raise ValueError(f"it must be a whole number from 1 on, got {value!r}")


def parse_similarity(value: str | float) -> float:
    """Parse a cosine from which texts count as alike.

    Raises:
        ValueError: the text is not a number above 0 and up to 1.
    """
    with suppress(ValueError):
        if 0 < (similarity := float(value)) <= 1:
            return similarity
    raise ValueError(f"a similarity must be a number above 0, up to 1, got {value!r}")


def format_duration(duration: timedelta | None) -> str:
    """Write a duration of whole seconds as the shortest text that `parse_duration` reads."""
    if duration is None:
        return _NO_DURATION
    seconds = duration // timedelta(seconds=1)
    sizes = _SECONDS.items()
    return next(f"{seconds // size}{unit}" for unit, size in sizes if seconds % size == 0)
