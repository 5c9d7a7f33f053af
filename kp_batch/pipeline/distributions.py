"""How the scores stand, in a few numbers a domain, kept for every run."""

import polars as pl

from kp_batch.contracts import DISTRIBUTIONS
from kp_batch.run import Run
from kp_batch.warehouse.relations import scan

_BINS = 10
_QUANTILES = (5, 25, 50, 75, 95)


def distributions(run: Run, tables: dict[str, int]) -> pl.DataFrame:
    """The distribution of the scores by domain, and of all: a frame of `DISTRIBUTIONS`.

    Args:
        run: the run that leaves them.
        tables: the version of each table.
    """
    scores = scan(run.config.warehouse, "scores", tables.get("scores"))
    columns = scores.select("task_domain", "score").collect()
    value = pl.col("score")
    bin_of = (value * _BINS).floor().clip(0, _BINS - 1)
    numbers = {
        "traces": pl.len().cast(pl.Int64),
        "mean": value.mean(),
        **{f"p{each}": value.quantile(each / 100, "linear") for each in _QUANTILES},
        "bins": pl.concat_list((bin_of == each).sum().cast(pl.Int64) for each in range(_BINS)),
    }
    by_domain = columns.group_by("task_domain").agg(**numbers).sort("task_domain")
    of_all = columns.select(**numbers).filter(pl.col("traces") > 0)
    both = pl.concat([of_all, by_domain], how="diagonal")
    whole = both.with_columns(run_id=pl.lit(run.run_id))
    return pl.concat([DISTRIBUTIONS.to_frame(), whole], how="diagonal")
