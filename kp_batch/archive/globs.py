"""Globs: which paths they match, and which folders may hold such a path."""

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Glob:
    """A pattern below a folder, as fsspec reads it: `**` stands for any number of folders."""

    folder: str
    pattern: str

    @classmethod
    def of(cls, path: str) -> "Glob | None":
        """Cut a path before its first part with *, ? or [; None if it has no such part."""
        if not (found := re.search(r"[^/]*[*?\[]", path)):
            return None
        return cls(path[: found.start()].rstrip("/") or "/", path[found.start() :])

    def matches(self, below: tuple[str, ...]) -> bool:
        """Whether it matches a path, given by its parts below the folder.

        Raises:
            ValueError: a `**` is no whole part of the pattern.
        """
        return _compiled(self.pattern).match("/".join(below)) is not None

    def leads_to(self, below: tuple[str, ...]) -> bool:
        """Whether it can match a path below this one."""
        for part, name in zip(self.pattern.split("/"), below, strict=False):
            if part == "**":
                return True
            if not _compiled(part).match(name):
                return False
        return True


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    from fsspec.utils import glob_translate

    return re.compile(glob_translate(pattern))
