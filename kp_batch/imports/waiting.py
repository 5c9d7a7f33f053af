"""The traces that wait for their root, and since when no more of them has come."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import polars as pl

WAITING = pl.Schema({"trace": pl.String, "since": pl.Datetime("us", "UTC")})
_SETTLES_AFTER = timedelta(days=1)


class Waiting:
    """The traces that wait, from one import to the next.

    Args:
        before: rows of `WAITING`, as the import before left them.
        now: by the clock of imports.

    Attributes:
        settled: the traces of which nothing has come for a day, so that nothing is waited for.
    """

    def __init__(self, before: pl.DataFrame, now: datetime) -> None:
        self._before, self._now = before, now
        self.settled = before.filter(pl.col("since") <= now - _SETTLES_AFTER)["trace"]
        self._built: list[pl.DataFrame] = []  # of those before
        self._waiting: list[pl.DataFrame] = []

    def take(self, built: Sequence[tuple[str, bool, bool]]) -> None:
        """Take what became of traces: of each its id, whether it waits, and has a new record."""
        schema = {"trace": pl.String, "waits": pl.Boolean, "is_new": pl.Boolean}
        rows = pl.DataFrame(built, schema=schema, orient="row")
        rows = rows.join(self._before, on="trace", how="left")
        since = pl.when(pl.col("is_new") | pl.col("since").is_null()).then(pl.lit(self._now))
        since = since.otherwise("since").cast(WAITING["since"])
        self._built.append(rows.filter(pl.col("since").is_not_null()).select("trace"))
        self._waiting.append(rows.filter("waits").select("trace", since=since))

    def rows(self) -> pl.DataFrame:
        """Rows of `WAITING`, as they are now."""
        built = pl.concat([pl.DataFrame(schema={"trace": pl.String}), *self._built])
        others = self._before.join(built, on="trace", how="anti")
        return pl.concat([others, *self._waiting]).sort("trace")
