"""What a user excludes from an archive: files and folders, by globs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from kp_batch.archive.folders import Glob, folders_above
from kp_batch.archive.sources import absolute, folders_named
from kp_batch.storage.urls import is_url


def parse_exclusion(text: str) -> str:
    """Check a glob of excluded files; see `Exclusion`.

    Raises:
        ValueError: it is not a glob below an archive, or cannot be stored.
    """
    parts = [part for part in text.split("/") if part not in {"", "."}]
    if not parts or ".." in parts:
        raise ValueError(
            "it must be a glob of files or folders below the archive, such as broken/*.parquet or "
            f"**/*.tmp.jsonl, or a full path or URL, got {text!r}"
        )
    try:
        text.encode()
        Glob("", text).matches(("a",))
    except UnicodeEncodeError as error:
        raise ValueError(f"write * for a name that is not UTF-8, got {text!r}") from error
    except ValueError as error:
        raise ValueError(
            f"** must be alone between two /, as in **/*.jsonl, got {text!r}"
        ) from error
    return text


@dataclass(frozen=True)
class Exclusion:
    """The files and folders that match one of some globs, and everything in these folders.

    A glob is a full path or a URL. Any other glob matches the path below each folder that the
    archive names, or that its globs begin with. If the archive names a file, it matches the file's
    name.

    Args:
        globs: globs as `parse_exclusion` returns them.
        archive: names of files, folders, globs and URLs.
    """

    globs: tuple[str, ...]
    archive: tuple[str, ...]

    def covers(self, path: str) -> bool:
        """Whether a file or a folder, by its discovered path or URL, is excluded."""
        return bool(self.globs_of(path))

    def globs_of(self, path: str) -> set[str]:
        """Return the globs that exclude it."""
        if not self.globs:
            return set()
        below = [*self._below(path)]
        return {
            *(text for text, glob in self._in_full.items() if glob.covers(_parts(path))),
            *(text for text, glob in self._relative.items() if any(map(glob.covers, below))),
        }

    def _below(self, path: str) -> Iterator[tuple[str, ...]]:
        if path in self._folders:
            yield (path.rpartition("/")[2],)
        for above in folders_above(path):
            if above in self._folders:
                yield _parts(path[len(above) + 1 :])

    @cached_property
    def _folders(self) -> frozenset[str]:
        return folders_named(self.archive)

    @cached_property
    def _in_full(self) -> dict[str, Glob]:
        return {text: Glob("", _without_end(_full(text))) for text in self.globs if _is_full(text)}

    @cached_property
    def _relative(self) -> dict[str, Glob]:
        relative = (text for text in self.globs if not _is_full(text))
        return {text: Glob("", _without_end(os.path.normpath(text))) for text in relative}


@dataclass(frozen=True)
class Excluded:
    """Records what an exclusion leaves out of the paths passed to it."""

    exclusion: Exclusion
    paths: set[str] = field(default_factory=set[str])
    _matching: set[str] = field(default_factory=set[str])

    def takes(self, path: str) -> bool:
        """Whether a file or a folder is left out; if so, it is recorded."""
        if not (globs := self.exclusion.globs_of(path)):
            return False
        self.paths.add(path)
        self._matching.update(globs)
        return True

    @property
    def unused(self) -> list[str]:
        """Return the globs that left nothing out."""
        return [glob for glob in self.exclusion.globs if glob not in self._matching]


def _is_full(glob: str) -> bool:
    return glob.startswith(("/", "~/")) or "://" in glob


def _full(glob: str) -> str:
    return glob.rstrip("/") if is_url(glob) else absolute(glob.removeprefix("file://"))


def _without_end(glob: str) -> str:
    """Shorten a glob for everything in a folder to the folder, which then need not be listed."""
    return glob.removesuffix("/**")


def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("/"))
