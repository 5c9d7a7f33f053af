"""What people read in a terminal: text made harmless, bars, aligned columns."""

_BARS = " ▁▂▃▄▅▆▇█"


def printable(text: str) -> str:
    """Text with all control characters written out, so that no terminal obeys them."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def printable_lines(text: str) -> str:
    """The same, but for the ends of lines."""
    return "\n".join(map(printable, text.split("\n")))


def one_line(text: str) -> str:
    """Text on one line, each run of white space a space."""
    return " ".join(text.split())


def shortened(text: str, length: int) -> str:
    """Printable text of at most so many characters; an ellipsis stands for what is left out."""
    told = printable(text[: length + 1])
    return told if len(told) <= length else f"{told[: length - 1]}…"


def bar_line(counts: list[int]) -> str:
    """Counts as a line of bars, the greatest of full height; a bin that is not empty shows."""
    most = max(counts, default=0)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most) if most else 0] for count in counts)


def aligned(rows: list[dict[str, str]]) -> list[str]:
    """Lines of a table with its head: the first column to the left, the others to the right."""
    if not rows:
        return []
    cells = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in cells
    ]
