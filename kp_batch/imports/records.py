"""Texts in one file, found by where they stand: what is long is never sorted, only its place is."""

from pathlib import Path


class Records:
    """A file of texts, written one after another, then read in any order.

    Args:
        path: of the file, which is made.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self.end = 0  # where the next one will stand

    def add(self, text: str) -> tuple[int, int]:
        """Write a text; returns where it stands, and its length in bytes."""
        content = text.encode()
        self._file.seek(self.end)
        self._file.write(content)
        place = self.end, len(content)
        self.end += len(content)
        return place

    def cut(self, end: int) -> None:
        """Take back what was written from there on."""
        self.end = end

    def read(self, place: int, length: int) -> str:
        """The text at a place."""
        self._file.seek(place)
        return self._file.read(length).decode()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
