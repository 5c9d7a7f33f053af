"""What files told when they were looked at, to choose among them: `_import/_looks.parquet`.

So the next import reads none of them again only to choose the same ones.
"""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from kp_batch.importers.archive import Archive
from kp_batch.importers.format import Format, Read

_NAME = "_import/_looks.parquet"
_ROWS = pl.Schema(dict.fromkeys(("path", "stamp", "told"), pl.String()))


class Looks:
    """What the files of a source tell; see `Format.tells`.

    Args:
        form: the format.
        stamps: what the files are by now.
        read: gives the content of a file.
    """

    def __init__(self, form: Format, stamps: Mapping[str, str], read: Read) -> None:
        self._form, self._stamps, self._read = form, stamps, read
        self._told: dict[str, tuple[str, str]] = {}  # by path: a stamp, and JSON

    def recall(self, archive: Archive) -> None:
        """Take what was told in the last import into an archive, if that can be read."""
        path = archive.here(_NAME)
        if path.exists():
            try:
                rows = pl.read_parquet(path, schema=_ROWS, glob=False).iter_rows()
            except pl.exceptions.PolarsError:  # files are looked at anew
                return
            self._told = {path: (stamp, told) for path, stamp, told in rows}

    def at(self, path: str) -> Any:
        """What a file tells as it is by now.

        Raises:
            OSError: it cannot be read.
        """
        stamp = self._stamps[path]
        before, told = self._told.get(path, ("", ""))
        if stamp != before:
            told = json.dumps(self._form.tells(path, self._read(path)))
            self._told[path] = stamp, told
        return json.loads(told)

    def save(self, archive: Archive) -> None:
        """Keep what was told, for the next import."""
        if self._told:
            rows = [(path, *told) for path, told in sorted(self._told.items())]
            with archive.writing(_NAME) as written:
                pl.DataFrame(rows, schema=_ROWS, orient="row").write_parquet(written)
