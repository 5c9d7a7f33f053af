"""Every frame of the report is what plain loops over the archive make of it."""

import pytest

from kp_batch.report.data import FRAMES, ReportData, gather
from kp_batch.report.findings import findings
from kp_batch.warehouse.reader import connect
from tests.support.oracle.findings import assert_findings, expected_findings
from tests.support.oracle.history import History
from tests.support.oracle.reports import Report, archive_of
from tests.support.oracle.sentences import assert_answered


def reported(history: History) -> ReportData:
    with connect(history.warehouse) as connection:
        return gather(connection)


def assert_reported(history: History) -> None:
    data = reported(history)
    assert data.run is not None
    assert data.run.run_id == history.last.run_id
    Report(archive_of(history, data.run.finished_at)).assert_same(data)


def test_every_frame_has_an_oracle() -> None:
    assert {*FRAMES} == {*Report.NAMES}


@pytest.mark.telling
@pytest.mark.slow
def test_law_the_report_of_an_ugly_archive_is_as_its_oracle(history: History) -> None:
    assert_reported(history)


@pytest.mark.slow
def test_law_findings_of_an_ugly_archive_are_as_their_oracle(history: History) -> None:
    assert_found(history)


@pytest.mark.slow
def test_law_findings_of_a_drawn_archive_are_as_their_oracle(by_chance: History) -> None:
    assert_found(by_chance)


def assert_found(history: History) -> None:
    data = reported(history)
    assert data.run is not None
    report = Report(archive_of(history, data.run.finished_at))
    with connect(history.warehouse) as connection:
        for scope in data.scopes:
            found = findings(data, scope)
            assert_findings(found, expected_findings(report, scope))
            for finding in found:
                assert_answered(connection, finding)


@pytest.mark.slow
def test_law_the_report_of_a_drawn_archive_is_as_its_oracle(by_chance: History) -> None:
    assert_reported(by_chance)
