"""Writes data/sample, with the scores of a run over it with the real model as its recorded ones.

kp-batch run data/sample --warehouse WAREHOUSE; python -m tests.support.make.recorded WAREHOUSE
"""

import json
import sys
from pathlib import Path

from kp_batch.warehouse.reader import connect
from tests.support import ROOT
from tests.support.make.sample.archive import trace_id, write_sample

RECORDED = ROOT / "tests" / "support" / "make" / "sample" / "recorded.json"
SHAPE = {"traces": 600, "seed": 7, "days": 21}
_DIGITS = 7  # on which machines agree


def write_recorded(warehouse: Path) -> None:
    with connect(warehouse) as connection:
        scores = dict(connection.execute("SELECT trace_id, score FROM scores").fetchall())
    ids = [trace_id(SHAPE["seed"], position) for position in range(SHAPE["traces"])]
    known = SHAPE | {"scores": [round(scores[each], _DIGITS) for each in ids]}
    RECORDED.write_text(json.dumps(known, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    write_recorded(Path(sys.argv[1]))
    write_sample(ROOT / "data" / "sample", **SHAPE)
