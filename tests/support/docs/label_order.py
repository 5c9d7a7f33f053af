"""`python -m tests.support.docs.label_order WAREHOUSE LABELS FILE.svg`: the chart of the labels."""

import sys
from pathlib import Path

import vl_convert

from kp_batch.operations.fit import fit_weights
from kp_batch.operations.fit_chart import order_spec
from kp_batch.report.themes import THEMES


def picture(warehouse: Path, labels: Path) -> str:
    """The chart as SVG, on white paper of its own."""
    result = fit_weights(warehouse, labels)
    spec = {**order_spec(result.orders, result.measure), "padding": 24}
    return vl_convert.vegalite_to_svg(spec, config={**THEMES["light"], "background": "white"})


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(picture(Path(sys.argv[1]), Path(sys.argv[2])), "utf-8")
