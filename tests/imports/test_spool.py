"""The spool of an import: each unit is in one part, with all its records, in whatever runs."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.imports import spool
from kp_batch.imports.blocks import Record
from kp_batch.imports.spool import Spool, part_of, place_of, records_of_part


@given(
    units=st.lists(st.text(st.characters(codec="utf-8"), max_size=2), max_size=30),
    parts=st.integers(1, 9),
    size=st.integers(1, 2_000),
)
def test_a_part_has_all_records_of_its_units(units: list[str], parts: int, size: int) -> None:
    records = [Record(unit, 1, 2, place, None, b"{}") for place, unit in enumerate(units)]
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(spool, "RUN_BYTES", size)
        spools = [Spool(Path(folder, name), parts) for name in ("one", "other")]
        for place, record in enumerate(records):
            spools[place % 2].add(record)
        runs = [run for each in spools for run in each.runs()]
        read = [[*records_of_part(runs, part)] for part in range(parts)]
    assert Counter(record for part in read for record in part) == Counter(records)
    for part, of_part in enumerate(read):
        assert {part_of(record.unit, parts) for record in of_part} <= {part}


@given(st.sets(st.text(st.characters(codec="utf-8"), max_size=3)), st.integers(1, 9))
def test_parts_are_ranges_of_the_order_in_which_units_are_stored(
    units: set[str], parts: int
) -> None:
    places = [part_of(unit, parts) for unit in sorted(units, key=place_of)]
    assert places == sorted(places)
