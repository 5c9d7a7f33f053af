"""Weights fitted to many labels: `python -m tests.bench.fitting [LABELS]`.

It prints seconds of the processor and the peak of memory. A hundred thousand labels of five domains
must take less than a minute and 1 GB.
"""

import resource
import sys
import time

import numpy as np
import polars as pl

from kp_batch.dimensions import DIMENSIONS, OVERRIDES
from kp_batch.operations.fit_groups import fit_groups
from kp_batch.scoring.profiles import load_profiles

_SECONDS, _BYTES = 60, 1_000_000_000


def labelled(number: int) -> pl.DataFrame:
    """Labels as `fit` reads them: five domains, three attempts at each task."""
    draw = np.random.default_rng(0)
    dimensions = dict(zip(DIMENSIONS, draw.random((4, number)), strict=True))
    overrides = {name: draw.random(number) < 0.1 for name in OVERRIDES}
    wanted = dimensions["novelty"] + dimensions["outcome_confidence"]
    tasks = np.arange(number) // 3
    return pl.DataFrame(
        {
            "trace_id": [f"t{place}" for place in range(number)],
            "task_domain": [f"domain {task % 5}" for task in tasks],
            "label": wanted + draw.normal(0, 0.5, number),
            "weight": np.ones(number),
            "objective_hash": [f"{task:08}" for task in tasks],
            "created_us": np.arange(number) * 1_000_000,
            **dimensions,
            **overrides,
            "score": wanted / 2,
            "success": np.ones(number),
            "confidence": dimensions["outcome_confidence"],
            "recorded_score": np.full(number, np.nan),
        }
    ).with_columns(pl.col("recorded_score").fill_nan(None))


def main(number: int) -> int:
    """Fit so many labels, and return the exit status."""
    rows = labelled(number)
    default = load_profiles().versions["default"][0].profile
    published = dict.fromkeys([*rows["task_domain"].unique(), "default"], default)
    began = time.process_time()
    groups = fit_groups(rows, published)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    found = {group.task_domain: group.decision for group in groups}
    print(f"{number:,} labels: {seconds:.1f} s of the processor, {peak / 1e6:,.0f} MB, {found}")
    return int(seconds > _SECONDS or peak > _BYTES)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 100_000))
