"""`python -m tests.support.docs.picture WAREHOUSE FILE.svg`: the chart that the README shows."""

import sys
from pathlib import Path

import vl_convert

from kp_batch.report.data import ReportData, gather
from kp_batch.report.labels import ALL
from kp_batch.report.panels import PANELS
from kp_batch.report.themes import THEMES
from kp_batch.warehouse.reader import connect
from tests.support.read.charts import drawn

SHOWN = "scores_by_domain"


def picture(data: ReportData) -> str:
    """The chart as SVG, on white paper of its own, with room for fonts wider than those here."""
    [shown] = [each for each in PANELS if each.name == SHOWN]
    words = {"title": shown.title, "description": shown.caption(data, ALL)}
    sized = {**drawn(shown, data, ALL), **words, "width": 720, "padding": 24}
    return vl_convert.vegalite_to_svg(sized, config={**THEMES["light"], "background": "white"})


if __name__ == "__main__":
    with connect(Path(sys.argv[1])) as catalog:
        Path(sys.argv[2]).write_text(picture(gather(catalog)), "utf-8")
