"""Weights that hold from a date on: what a change of them rescores, and where it is shown."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest

import kp_batch.scoring.profiles
from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import WarehouseError
from kp_batch.operations.current_settings import settings
from kp_batch.operations.explain import explain
from kp_batch.operations.forget import forget
from kp_batch.operations.score import score_lines, scored_text
from kp_batch.operations.sweep import sweep
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.planning.scorer import FORMULAS
from kp_batch.report.run_summary import Summary
from kp_batch.scoring.profiles import load_profiles, parse_profiles
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.reasons import setting_changes
from tests.support.make.archives import lines, step, trace, write_jsonl
from tests.support.make.runs import config
from tests.support.oracle.tables import tables
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

TO = "\N{RIGHTWARDS ARROW}"
START = datetime(2026, 4, 28, tzinfo=UTC)
TIMES = [START + timedelta(hours=6 * number) for number in range(24)]  # to the third of May
EQUAL = dict.fromkeys(DIMENSIONS, 0.25)
OTHER = {**EQUAL, "complexity": 0.1, "novelty": 0.4}


def at(moment: datetime, name: str = "", domain: str = "code", **more: Any) -> dict[str, Any]:
    words = f"fix the import {moment.hour} {moment.day % 4}"
    return trace(
        id=name or f"t{TIMES.index(moment):02d}",
        created_at=moment.isoformat(),
        objective=words,
        task_domain=domain,
        steps=[step("thought", words)] * 2,
        **more,
    )


class Archive:
    """Traces every six hours, of two domains in turn, and runs over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = [
            at(moment, domain=("code", "law")[number % 2]) for number, moment in enumerate(TIMES)
        ]
        write_jsonl(folder / "archive" / "a.jsonl", rows)

    def config(self, warehouse: str = "warehouse", **profiles: Any) -> RescoreConfig:
        options = {"profiles": {**load_profiles().as_json(), **profiles}} if profiles else {}
        fresh = config(self.folder, self.folder / "archive", cache_size=3, **options)
        return fresh.model_copy(update={"warehouse": self.folder / warehouse})

    def run(self, **profiles: Any) -> Summary:
        """A run, which leaves what a run into a new warehouse does, to the bit."""
        summary = rescore_archive(self.config(**profiles))
        with TemporaryDirectory(dir=self.folder) as name:
            rescore_archive(self.config(name, **profiles))
            actual, wanted = tables(self.config().warehouse), tables(self.folder / name)
        for table, rows in wanted.items():
            assert actual[table].equals(rows), table
        return summary

    def rescored(self, summary: Summary) -> list[datetime]:
        query = "SELECT created_at FROM scores WHERE run_id = ? ORDER BY created_at"
        with connect(self.config().warehouse) as connection:
            return [moment for (moment,) in connection.execute(query, [summary.run_id]).fetchall()]


DATED = {"code": [EQUAL, {"from": "2026-05-01", **OTHER}]}


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def scored_once(folder: Path, **profiles: Any) -> Path:
    archive = Archive(folder)
    assert rescore_archive(archive.config(**profiles)).counts.rescored == len(TIMES)
    keep(folder)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scored_once(tmp_path_factory.mktemp("built in") / "made")


@pytest.fixture
def scored(made: Path) -> Archive:
    """After a run with the built-in weights."""
    restore(made)
    return Archive(made)


@pytest.fixture(scope="module")
def made_dated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scored_once(tmp_path_factory.mktemp("dated") / "made", **DATED)


@pytest.fixture
def dated(made_dated: Path) -> Archive:
    """After a run with `DATED`."""
    restore(made_dated)
    return Archive(made_dated)


def of_code(first: int, last: int) -> list[datetime]:
    return TIMES[first:last][first % 2 :: 2]


def test_a_date_rescores_what_lies_behind_it_and_another_what_lies_between(
    scored: Archive,
) -> None:
    code = load_profiles().as_json()["code"]
    added = scored.run(code=[code, {"from": TIMES[10], **OTHER}])  # that of a trace, within a day
    assert scored.rescored(added) == of_code(10, 24)
    assert (added.counts.rescored, added.counts.reweighted, added.counts.replayed) == (7, 7, 0)
    assert added.counts.partitions == len({moment.date() for moment in of_code(10, 24)})
    later = scored.run(code=[code, {"from": TIMES[13], **OTHER}])
    assert scored.rescored(later) == of_code(10, 13)
    assert later.counts.rescored == 2
    same = scored.run(code=[code, {"from": TIMES[12] + timedelta(microseconds=1), **OTHER}])
    assert (same.counts.rescored, same.counts.partitions) == (0, 0)
    undone = scored.run(code=code)
    assert scored.rescored(undone) == of_code(13, 24)
    assert undone.counts.reweighted == undone.counts.rescored
    assert scored.run().run_id is None


def test_a_domain_takes_default_until_its_weights_begin(scored: Archive) -> None:
    scored.run(law=[{"from": "2026-05-01", **OTHER}])
    borne = "SELECT profile, min(created_at) FROM scores WHERE task_domain = 'law' GROUP BY ALL"
    first = TIMES[13]
    assert sorted(ask_rows(scored.config().warehouse, borne)) == [
        ("default", TIMES[1]),
        ("law", first),
    ]
    moved = scored.run(default=[OTHER, {"from": TIMES[3], **EQUAL}], law=[{"from": first, **OTHER}])
    assert scored.rescored(moved) == TIMES[1:13:2]


def test_a_late_file_takes_the_weights_of_its_time(dated: Archive) -> None:
    late = [at(TIMES[5] + timedelta(hours=1), "april"), at(TIMES[20] + timedelta(hours=1), "may")]
    write_jsonl(dated.folder / "archive" / "late.jsonl", late)
    dated.run(**DATED)
    assigned = ask_rows(
        dated.config().warehouse, "SELECT trace_id, profile_id FROM scores WHERE trace_id[1] <> 't'"
    )
    april, may = parse_profiles(DATED, "x").versions["code"]
    assert sorted(assigned) == [
        ("april", april.profile.profile_id),
        ("may", may.profile.profile_id),
    ]


def test_a_trace_that_moves_in_time_takes_the_weights_of_then(dated: Archive) -> None:
    write_jsonl(dated.folder / "archive" / "z.jsonl", [at(TIMES[4], "t20")])
    dated.run(**DATED)
    query = "SELECT count(DISTINCT profile_id) FROM scores WHERE trace_id IN ('t20', 't04')"
    assert ask_rows(dated.config().warehouse, query) == [(1,)]


def test_forgetting_keeps_the_weights_of_each_time(archive: Archive) -> None:
    profiles = {"code": [EQUAL, {"from": TIMES[11], **OTHER}]}
    rescore_archive(archive.config(**profiles))
    forget(archive.config().warehouse, ["t10"])
    remaining = tables(archive.config().warehouse)["scores"]
    rows = [at(moment, domain=("code", "law")[n % 2]) for n, moment in enumerate(TIMES) if n != 10]
    write_jsonl(archive.folder / "archive" / "a.jsonl", rows)
    rescore_archive(archive.config("fresh", **profiles))
    assert remaining.equals(tables(archive.folder / "fresh")["scores"])


@pytest.mark.parametrize("formula", ["facts", "scoring"])
def test_forgetting_and_sweeping_mix_no_formulas(
    scored: Archive, monkeypatch: pytest.MonkeyPatch, formula: str
) -> None:
    """Another kp_batch has to rescore all scores first, whatever of it differs."""
    monkeypatch.setitem(FORMULAS, formula, 99)
    if formula == "scoring":
        monkeypatch.setattr(kp_batch.scoring.profiles, "SCORING_VERSION", 99)
    warehouse, message = (
        scored.config().warehouse,
        "another version of kp_batch, .* first: kp-batch run",
    )
    before = tables(warehouse)["scores"]
    with pytest.raises(WarehouseError, match=message):
        forget(warehouse, ["t10"])
    with pytest.raises(WarehouseError, match=message):
        forget(warehouse, ["t10"], dry_run=True)
    with pytest.raises(WarehouseError, match=message):
        sweep(warehouse)
    assert tables(warehouse)["scores"].equals(before)
    assert ask_rows(scored.config().warehouse, "SELECT status FROM runs") == [("done",)]
    if formula == "scoring":
        assert rescore_archive(scored.config()).counts.rescored == len(TIMES)
        forget(warehouse, ["t10"])
        assert "t10" not in tables(warehouse)["scores"]["trace_id"]


def weight_changes(old: Any, new: Any) -> list[str]:
    reasons = setting_changes({"profiles": {"code": old}}, {"profiles": {"code": new}})
    return [reason.words.removeprefix("weights of code") for reason in reasons]


def test_reasons_name_the_times_at_which_weights_differ() -> None:
    may, june = ({"from": day, **OTHER} for day in ("2026-05-01", "2026-06-01"))
    change = f"complexity 0.25 {TO} 0.1, novelty 0.25 {TO} 0.4"
    back = f"complexity 0.1 {TO} 0.25, novelty 0.4 {TO} 0.25"
    listed = ", ".join(f"{name} {value:g}" for name, value in OTHER.items())
    assert weight_changes(EQUAL, OTHER) == [f": {change}"]
    assert weight_changes(EQUAL, [EQUAL, june]) == [f" from 2026-06-01: {change}"]
    assert weight_changes([EQUAL, june], [EQUAL, may]) == [
        f" from 2026-05-01, before 2026-06-01: {change}"
    ]
    assert weight_changes([EQUAL, june], OTHER) == [f" before 2026-06-01: {change}"]
    assert weight_changes([EQUAL, june], [OTHER, {**june, **EQUAL}]) == [
        f" before 2026-06-01: {change}",
        f" from 2026-06-01: {back}",
    ]
    assert weight_changes(None, [june]) == [f" from 2026-06-01: new ({listed})"]
    assert weight_changes([june], None) == [f" from 2026-06-01: gone ({listed})"]
    assert weight_changes([EQUAL, may, june], [EQUAL, may]) == []


@pytest.mark.telling
def test_settings_explain_and_score_name_the_date(dated: Archive) -> None:
    warehouse, versions = dated.config().warehouse, dated.config(**DATED).profiles
    named = {setting["name"]: setting["value"] for setting in settings(warehouse)}
    assert named["weights of code"] == EQUAL
    assert named["weights of code from 2026-05-01"] == OTHER
    in_text = "weights of code from 2026-05-01 (code-"
    for place, date in ((0, None), (20, "2026-05-01")):
        explained = explain(warehouse, f"t{place:02d}")
        [scored] = score_lines(lines(at(TIMES[place], "x")), versions, TIMES[place])
        assert explained.weights_from == scored.weights_from == date
        assert explained.by_profile["code"] == explained.breakdown.score
        assert scored.breakdown.profile_id == explained.breakdown.profile_id
        assert (in_text in str(explained)) == bool(date)
        assert (in_text in scored_text(scored)) == bool(date)


def test_the_profiles_are_those_of_the_settings_and_scores_join_them_once(archive: Archive) -> None:
    again = [EQUAL, {"from": "2026-04-30", **OTHER}, {"from": "2026-05-02", **EQUAL}]
    rescore_archive(archive.config(code=again))
    with connect(archive.config().warehouse) as connection:
        joined = pl.DataFrame(connection.sql("FROM scores JOIN profiles USING (profile_id)").pl())
    assert len(joined) == len(TIMES)
    [(dates,)] = ask_rows(
        archive.config().warehouse,
        "SELECT valid_from FROM profiles WHERE name = 'code' AND complexity = 0.25",
    )
    assert dates == [None, datetime(2026, 5, 2, tzinfo=UTC)]
