"""What the report notices of an archive is true, by plain loops over that archive."""

import pytest

from kp_batch.report.data import gather
from kp_batch.report.notices import notices
from kp_batch.warehouse.reader import connect
from tests.support.oracle.history import History
from tests.support.oracle.notices import expected_notices
from tests.support.oracle.reports import Report, archive_of

OF_RUNS = {"audits", "failed_run", "incomparable", "settings", "unreadable_files"}


def assert_noticed(history: History) -> None:
    with connect(history.warehouse) as connection:
        data = gather(connection)
    assert data.run is not None
    wanted = expected_notices(Report(archive_of(history, data.run.finished_at)))
    found = [
        (each.code, f"{each.sentence.partition(', but this is not a trend')[0].rstrip('.')}.")
        for each in notices(data)
        if each.code not in OF_RUNS
    ]
    assert sorted(found) == sorted(wanted)


@pytest.mark.slow
def test_law_what_is_noticed_of_an_ugly_archive_is_true(history: History) -> None:
    assert_noticed(history)


@pytest.mark.slow
def test_law_what_is_noticed_of_a_drawn_archive_is_true(by_chance: History) -> None:
    assert_noticed(by_chance)
