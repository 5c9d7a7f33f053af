"""Rows of text as aligned columns."""


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
