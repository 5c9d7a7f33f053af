"""Texts: made harmless for terminals, laid out for people, and values that others write."""

import codecs
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import IO
from unicodedata import category, east_asian_width

# None of them is a blank: those collapse on pages, and are narrower than bars in many fonts.
_BARS = "▁▂▃▄▅▆▇█"
_DRAWN = _BARS + "─│┌┬┐├┼┤└┴┘…"
_PLAIN = str.maketrans(_DRAWN, ".:-=+*#@" + "-|" + "+" * 9 + "~")
WITH_ESCAPES = "kp_batch.with_escapes"
DOMAIN = 40  # characters of a domain that summaries and plans show
_VALUE = 30  # characters of a value in a cache's name
_NO_DURATION = "none"
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
# The only markup in a code span: what ends the span and, in a table, what ends the cell.
_ESCAPED = str.maketrans({sign: f"\\x{ord(sign):02x}" for sign in "`|"})
_MOST_SECONDS = 1e11  # of a time in seconds, in the year 5138
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ISO_8601 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]((?:[01][0-9]|2[0-3]):[0-5][0-9](?::(?:[0-5][0-9]|(60))(?:[.,][0-9]+)?)?)"
    r"\s?([Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?)?"
)


def printable(text: str) -> str:
    """Write out all control characters of a text, so that no terminal obeys them."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def printable_lines(text: str) -> str:
    """Write out all control characters of a text except the ends of its lines."""
    return "\n".join(map(printable, text.split("\n")))


class Terminal:
    """A terminal to which control characters are written out, so that it obeys none."""

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
    """A text without lone surrogates, which JSON has and UTF-8 has not."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def drawn(text: str, out: IO[str]) -> str:
    """A text for people, drawn with letters that an output has."""
    try:
        _DRAWN.encode(getattr(out, "encoding", None) or "utf-8")  # a StringIO has any
    except UnicodeEncodeError:
        return text.translate(_PLAIN)
    return text


def _with_escapes(error: UnicodeError) -> tuple[str, int]:
    """Write letters that an encoding lacks as JSON escapes them, so that JSON stays what it is."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(WITH_ESCAPES, _with_escapes)


def one_line(text: str) -> str:
    """Put a text on one line, with a space for each run of white space."""
    return " ".join(text.split())


def shortened(text: str, length: int) -> str:
    """Cut a text to at most `length` printable characters; an ellipsis stands for the rest."""
    shown = printable(text[: length + 1])
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"


def count_of(count: int, noun: str) -> str:
    """Write a count with a noun, in the singular or the plural."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_of(count: int) -> str:
    """Write a number of bytes."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def be(count: int) -> str:
    """The verb that follows a count."""
    return "is" if count == 1 else "are"


def some_of(words: Iterable[str], number: int) -> str:
    """The first words of so many, and how many more there are."""
    named = [*words]
    more = number - len(named)
    return ", ".join([*named, *([f"{more:,} more"] if more > 0 else [])])


def ten_of(words: Iterable[str]) -> str:
    """The first ten words, and how many more there are."""
    listed = [*words]
    return some_of(listed[:10], len(listed))


def unknown_of(named: str, number: int, all_: int, noun: str) -> str:
    """The sentence of what is unknown: a few of them by name, how many, and of how many."""
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
    """Write a time of ISO 8601 in UTC, to the second."""
    return f"{text[:10]} {text[11:19]} UTC"


def code(text: str) -> str:
    """Write text as a code span of markdown, in which no markup has an effect."""
    return f"`{text.translate(_ESCAPED)}`"


def bar_line(counts: list[int]) -> str:
    """Draw counts as a line of bars: the greatest has full height, and only 0 has the lowest."""
    most = max(counts, default=0)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most) if most else 0] for count in counts)


def aligned(rows: list[dict[str, str]]) -> list[str]:
    """Lay out a table as lines, the head first: only the first column is aligned to the left."""
    if not rows:
        return []
    cells = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = ([padded(row[0], widths[0]), *map(_padded_left, row[1:], widths[1:])] for row in cells)
    return ["  " + "  ".join(line).rstrip() for line in lines]


def width(text: str) -> int:
    """How many columns of a terminal a printable text takes: a wide character takes two."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def padded(text: str, columns: int) -> str:
    """Pad a text with blanks on the right, to so many columns at least."""
    return text + " " * (columns - width(text))


def _padded_left(text: str, columns: int) -> str:
    return " " * (columns - width(text)) + text


def _columns(sign: str) -> int:
    if category(sign) in {"Mn", "Me"}:  # a mark on the character before
        return 0
    return 2 if east_asian_width(sign) in "WF" else 1


def group_suffix(cache_group: str | None) -> str:
    """What follows "the cache": " of agent_id a, no host"; empty where all traces share one."""
    if cache_group is None:
        return ""
    values: dict[str, str | None] = json.loads(cache_group)
    pairs = (
        f"no {name}" if value is None else f"{name} {shortened(value, _VALUE)}"
        for name, value in values.items()
    )
    return printable(f" of {', '.join(pairs)}")


def time_of(text: object) -> datetime | None:
    """The time of a text such as 2026-01-05T08:00:00.123456789+02:00.

    A time without a zone is UTC, a date without a time its midnight. Digits finer than a
    microsecond are cut off. None of anything else.
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
    """The time of a text in one form, whose order is that of the times; '' if it is no time."""
    time = time_of(text)
    return time.isoformat(timespec="microseconds") if time else ""


def time_of_ns(nanoseconds: int) -> datetime | None:
    """The time so many nanoseconds after 1970, cut to microseconds; None if it is too far away."""
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1_000)
    except OverflowError:
        return None


def time_of_number(number: object) -> datetime | None:
    """The time of a number, or of its text: seconds after 1970, or milliseconds if too many."""
    with suppress(ValueError, TypeError, OverflowError):
        count = float(number)  # type: ignore[arg-type]
        seconds = count if abs(count) < _MOST_SECONDS else count / 1_000
        return time_of_ns(round(seconds * 1e6) * 1_000)
    return None


def in_utc(time: datetime) -> datetime:
    """A time in UTC, of which it is where it has no zone."""
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def us_of(time: datetime) -> int:
    """How many microseconds after 1970 a time is."""
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
        raise ValueError(f"a duration is {wanted}, got {text!r}")
    try:
        return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
    except OverflowError as error:
        raise ValueError(f"a duration is at most {timedelta.max.days}d, got {text!r}") from error


def parse_keep(text: str) -> timedelta:
    """Parse how long what runs left stays readable, such as 12h or 30d.

    Raises:
        ValueError: it is no such time, or may be minutes or months.
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
    """How many of something are wanted.

    Raises:
        ValueError: it is no whole number from 1 on.
    """
    with suppress(ValueError):
        if (count := int(value)) >= 1:
            return count
    raise ValueError(f"it is a whole number from 1 on, got {value!r}")


def parse_similarity(value: str | float) -> float:
    """A cosine from which on texts are alike.

    Raises:
        ValueError: it is no number above 0, up to 1.
    """
    with suppress(ValueError):
        if 0 < (similarity := float(value)) <= 1:
            return similarity
    raise ValueError(f"a similarity is a number above 0, up to 1, got {value!r}")


def format_duration(duration: timedelta | None) -> str:
    """Write a duration of whole seconds as the shortest text that `parse_duration` reads."""
    if duration is None:
        return _NO_DURATION
    seconds = duration // timedelta(seconds=1)
    sizes = _SECONDS.items()
    return next(f"{seconds // size}{unit}" for unit, size in sizes if seconds % size == 0)
