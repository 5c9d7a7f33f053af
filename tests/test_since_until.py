"""Runs that restate some days only: other rows stay, and what is new is scored wherever it is."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import kp_batch.scoring.profiles
from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.embedding.hashing import Hashing
from kp_batch.operations.forget import forget
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.summary import Summary
from kp_batch.run import in_force
from kp_batch.warehouse.reader import connect
from tests.archives import step, trace, write_jsonl
from tests.lawful import tables
from tests.test_rescore import ask, config

FIRST, LAST = 5, 9  # of January; two traces a day
IDS = ("encoder_id", "cache_id", "profile_id")
MET = ("novelty", "max_similarity", "nearest_trace_id", "nearest_age_s", "cache_size")
WORDS = ("fix the import", "sum the rows", "fix the export", "plan a trip", "sum it all", "!")


def said(name: str, day: int, hour: int, words: str, **more: Any) -> dict[str, Any]:
    given = {"created_at": f"2026-01-{day:02d}T{hour:02d}:00:00Z", "objective": words}
    return trace(**{"id": name, **given, "steps": [step("thought", words)] * 2, **more})


def number(day: int, hour: int) -> int:
    return 2 * (day - FIRST) + (hour > 8)


TRACES = [
    said(f"t{day}-{hour}", day, hour, WORDS[number(day, hour) % 6] + f" {number(day, hour) % 4}")
    for day in range(FIRST, LAST + 1)
    for hour in (8, 16)
]


class Nights:
    """An archive of some days, and runs over it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.archive = folder, folder / "archive"
        self.warehouse = folder / "warehouse"
        self.profiles = folder / "profiles.toml"
        self.profiles.write_text(
            "[profiles.code]\n" + "".join(f"{name} = 0.25\n" for name in DIMENSIONS)
        )
        write_jsonl(self.archive / "a.jsonl", TRACES)

    def config(self, **changes: Any) -> RescoreConfig:
        return config(self.folder, self.archive, **{"cache_size": 2, **changes})

    def run(self, **changes: Any) -> Summary:
        """A run, and what has to be true of the profiles after every one."""
        config = self.config(**changes)
        summary = rescore_archive(config)
        loaded = config.profiles.values()
        borne = {each for (each,) in ask(config, "SELECT profile_id FROM scores")}
        known = [each for (each,) in ask(config, "SELECT profile_id FROM profiles ORDER BY ALL")]
        assert known == sorted(borne | {each.profile_id for each in loaded})
        return summary

    def rows(self) -> dict[str, dict[str, Any]]:
        """The published rows by id, whole: with who stated them, and when."""
        with connect(self.warehouse) as connection:
            frame = pl.DataFrame(connection.sql("FROM scores").to_arrow_table())
        return {row["trace_id"]: row for row in frame.iter_rows(named=True)}

    def in_full(self, **changes: Any) -> dict[str, dict[str, Any]]:
        """The rows of one full run over the archive as it stands."""
        beside = Nights.__new__(Nights)
        beside.folder, beside.archive = self.folder, self.archive
        beside.warehouse = self.folder / "reference"
        shutil.rmtree(beside.warehouse, ignore_errors=True)
        beside.run(**changes, warehouse=beside.warehouse)
        return beside.rows()


@pytest.fixture(scope="module")
def as_it_was(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    nights = Nights(tmp_path_factory.mktemp("days"))
    nights.run()
    shutil.copytree(nights.folder, f"{nights.folder}-as-it-was")
    return nights


@pytest.fixture
def nights(as_it_was: Nights) -> Nights:
    """The same warehouse again, at the same path, whatever the last test made of it."""
    shutil.rmtree(as_it_was.folder)
    shutil.copytree(f"{as_it_was.folder}-as-it-was", as_it_was.folder)
    return as_it_was


def without_run(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "run_id"}


def changed(nights: Nights, name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A change of settings that changes every row; of the code, for other vectors."""
    if name == "vectors":
        monkeypatch.setattr(Hashing, "encoder_id", "hashing-other")
        return {}
    other = {"profiles": nights.profiles, "cache_size": 1, "ttl": "9h", "embedder": "none"}
    return {name: other[name]}


@pytest.mark.parametrize(
    ("name", "limits", "days"),
    [
        ("profiles", {"since": "2026-01-06", "until": "2026-01-07"}, {6, 7}),
        ("cache_size", {"until": "2026-01-06"}, {5, 6}),
        ("cache_size", {"since": "2026-01-07", "until": "2026-01-07"}, {7}),
        ("ttl", {"since": "2026-01-06", "until": "2026-01-07"}, {6, 7}),
        ("embedder", {"since": "2026-01-08"}, {8, 9}),
        ("vectors", {"until": "2026-01-06"}, {5, 6}),
    ],
)
def test_only_the_days_named_are_restated(
    nights: Nights,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    limits: dict[str, str],
    days: set[int],
) -> None:
    before = nights.rows()
    settings = changed(nights, name, monkeypatch)
    summary = nights.run(**settings, **limits)
    wanted, now = nights.in_full(**settings), nights.rows()
    assert now.keys() == before.keys()
    for each, row in now.items():
        if row["created_at"].day in days:
            assert without_run(row) == without_run(wanted[each])
            assert row["run_id"] == summary.run_id
            assert any(row[id_] != before[each][id_] for id_ in IDS)
        else:
            assert row == before[each]
    counts = summary.counts
    assert (counts.restated, counts.partitions) == (2 * len(days), len(days))
    assert counts.replayed == (0 if name == "profiles" else 2 * len(days))
    assert counts.reweighted == (2 * len(days) if name == "profiles" else 0)


@pytest.mark.parametrize("name", ["profiles", "cache_size"])
def test_what_a_run_left_mixed_is_counted_and_a_run_without_limits_ends_it(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    settings = changed(nights, name, monkeypatch)
    nights.run(**settings, until="2026-01-07")
    query = "SELECT fingerprints FROM runs ORDER BY started_at DESC LIMIT 1"
    told = json.loads(ask(nights.config(), query)[0][0])
    for id_ in IDS:
        counts = ask(nights.config(), f"SELECT {id_}, count(*) FROM scores GROUP BY ALL")
        assert told[id_] == dict(counts)
        assert sum(told[id_].values()) == 10
    assert max(len(told[id_]) for id_ in IDS) == 2
    assert nights.run(**settings, until="2026-01-07").run_id is None
    stated = {each: row["run_id"] for each, row in nights.rows().items()}
    nights.run(**settings)
    wanted, now = nights.in_full(**settings), nights.rows()
    assert {each: without_run(row) for each, row in now.items()} == {
        each: without_run(row) for each, row in wanted.items()
    }
    for each, row in now.items():  # and what was as it has to be was not stated again
        assert (row["run_id"] == stated[each]) is (row["created_at"].day <= 7)
    assert nights.run(**settings).run_id is None
    profiles = tables(nights.warehouse)["profiles"]
    assert profiles.equals(tables(nights.folder / "reference")["profiles"])


def test_a_profile_that_the_last_forgotten_trace_bore_goes_with_it(nights: Nights) -> None:
    settings = {"profiles": nights.profiles, "since": "2026-01-06"}
    nights.run(**settings)
    query = "SELECT count(*) FROM profiles WHERE name = 'code'"
    assert ask(nights.config(), query) == [(2,)]
    forget(nights.warehouse, ["t5-8", "t5-16"])
    assert ask(nights.config(), query) == [(1,)]
    assert nights.run(**settings).run_id is None


def test_weights_of_an_older_formula_stay_as_long_as_a_score_bears_them(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = nights.rows()
    monkeypatch.setattr(kp_batch.scoring.profiles, "SCORING_VERSION", 2)
    late = said("late", 5, 12, "fix the import, too")
    write_jsonl(nights.archive / "b.jsonl", [late])
    nights.run(since="2026-01-09")
    older = {each for each, row in nights.rows().items() if row["profile_id"].endswith("-v1")}
    # What met the late trace is weighted by the formula of now, wherever it stands.
    assert older == before.keys() - {"t5-16", "t6-8", "t9-8", "t9-16"}
    query = "SELECT count(*) FROM profiles WHERE profile_id LIKE '%-v1'"
    assert ask(nights.config(), query) == [(1,)]
    nights.run()
    assert ask(nights.config(), query) == [(0,)]


def test_what_forgetting_weighs_by_a_newer_formula_stands_among_the_profiles(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.scoring.profiles, "SCORING_VERSION", 2)
    forget(nights.warehouse, ["t5-8"])
    newer = {each for each, row in nights.rows().items() if row["profile_id"].endswith("-v2")}
    assert newer == {"t5-16", "t6-8"}
    query = "SELECT count(*) FROM scores ANTI JOIN profiles USING (profile_id)"
    assert ask(nights.config(), query) == [(0,)]


def test_limits_alone_change_no_score_and_stay_in_force(nights: Nights) -> None:
    before = nights.rows()
    nights.run(since="2026-01-06", until="2026-01-07")
    nights.run(since="2027-01-01", cache_size=1)
    assert nights.rows() == before
    assert nights.run(since="2027-01-01", cache_size=1).run_id is None
    assert in_force(nights.config()).settings["since"] == "2027-01-01"


def test_a_threshold_has_no_days(nights: Nights) -> None:
    before = nights.rows()
    nights.run(threshold=0.2, since="2026-01-08")
    assert {each: row["run_id"] for each, row in nights.rows().items()} == {
        each: row["run_id"] for each, row in before.items()
    }
    [(wrong,)] = ask(
        nights.config(), "SELECT count(*) FROM scores WHERE meets_threshold <> (score >= 0.2)"
    )
    assert wrong == 0


def test_new_traces_outside_are_scored_and_those_that_meet_them_replayed(nights: Nights) -> None:
    """With another cache and other weights, which those outside get only as far as they must."""
    before = nights.rows()
    late = said("late", 5, 12, "fix the import, too")
    write_jsonl(nights.archive / "b.jsonl", [late, said("new", 10, 8, "sum the new rows")])
    settings = {"cache_size": 1, "profiles": nights.profiles}
    summary = nights.run(**settings, since="2026-01-08", until="2026-01-08")
    wanted, now = nights.in_full(**settings), nights.rows()
    assert now.keys() == {*before, "late", "new"}
    for each in ("late", "new", "t8-8", "t8-16"):
        assert without_run(now[each]) == without_run(wanted[each])
        assert now[each]["run_id"] == summary.run_id
    met = [each for each, row in now.items() if each in before and row["run_id"] == summary.run_id]
    # What had met two before met the late trace, too; so it stood in the window of the next two.
    assert sorted(met) == ["t5-16", "t6-8", "t8-16", "t8-8"]
    for each in ("t5-16", "t6-8"):
        assert {name: now[each][name] for name in MET} == {name: wanted[each][name] for name in MET}
        assert now[each]["cache_id"] == wanted[each]["cache_id"] != before[each]["cache_id"]
        assert now[each]["profile_id"] == before[each]["profile_id"] != wanted[each]["profile_id"]
    for each in before.keys() - {*met}:
        assert now[each] == before[each]
    assert nights.run(**settings, since="2026-01-08", until="2026-01-08").run_id is None


def test_a_larger_cache_outside_is_met_by_no_more_than_was_late(nights: Nights) -> None:
    before = nights.rows()
    write_jsonl(nights.archive / "b.jsonl", [said("late", 6, 12, "fix the import, too")])
    summary = nights.run(cache_size=3, since="2026-01-09")
    wanted, now = nights.in_full(cache_size=3), nights.rows()
    stated = {each for each, row in now.items() if row["run_id"] == summary.run_id}
    assert stated == {"late", "t6-16", "t7-8", "t7-16", "t9-8", "t9-16"}
    for each in stated:
        assert without_run(now[each]) == without_run(wanted[each])
    for each in before.keys() - stated:
        assert now[each] == before[each]


def test_traces_that_go_or_change_outside_are_met_no_more(nights: Nights) -> None:
    before = nights.rows()
    rest = [each for each in TRACES if each["id"] != "t5-16"]
    rest[0] = rest[0] | {"outcome": {"result_summary": "done", "confidence": 0.1}}
    write_jsonl(nights.archive / "a.jsonl", rest)
    summary = nights.run(profiles=nights.profiles, since="2026-01-09")
    wanted, now = nights.in_full(profiles=nights.profiles), nights.rows()
    assert summary.counts.removed == 1
    stated = {each for each, row in now.items() if row["run_id"] == summary.run_id}
    assert stated == {"t5-8", "t6-8", "t6-16", "t9-8", "t9-16"}
    assert without_run(now["t5-8"]) == without_run(wanted["t5-8"])
    for each in ("t6-8", "t6-16"):
        assert {name: now[each][name] for name in MET} == {name: wanted[each][name] for name in MET}
        assert now[each]["profile_id"] == before[each]["profile_id"] != wanted[each]["profile_id"]
    for each in before.keys() - stated - {"t5-16"}:
        assert now[each] == before[each]


@pytest.mark.parametrize(
    "carried", [{"quality_score": 0.5}, {"agent_id": "another"}, {"framework": "another"}]
)
def test_what_is_only_carried_along_restates_its_row_and_keeps_novelty_and_weights(
    nights: Nights, carried: dict[str, Any]
) -> None:
    nights.run(profiles=nights.profiles, since="2026-01-07")
    before = nights.rows()
    metadata = {"t5-16": carried, "t8-8": carried}
    changed = [
        {**each, "metadata": {**each["metadata"], **metadata.get(each["id"], {})}}
        for each in TRACES
    ]
    write_jsonl(nights.archive / "a.jsonl", changed)
    summary = nights.run(profiles=nights.profiles, since="2026-01-07")
    assert (summary.counts.restated, summary.counts.replayed) == (2, 0)
    [(name, value)] = carried.items()
    column = {"quality_score": "recorded_score"}.get(name, name)
    for each, row in nights.rows().items():
        given = {column: value, "run_id": summary.run_id} if each in metadata else {}
        assert row == {**before[each], **given}


def test_a_day_is_one_in_utc(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    moments = {
        "the last of the 5th": "2026-01-05T23:59:59.999999Z",
        "the first of the 6th": "2026-01-06T00:00:00Z",
        "the 6th, told as the 5th": "2026-01-05T23:30:00-01:00",
        "the 6th, told as the 7th": "2026-01-07T00:30:00+01:00",
        "the last of the 6th": "2026-01-06T23:59:59.999999Z",
        "the first of the 7th": "2026-01-07T00:00:00Z",
    }
    rows = [said(each, 5, 8, "fix it", created_at=moment) for each, moment in moments.items()]
    write_jsonl(nights.archive / "a.jsonl", rows)
    nights.run()
    before = nights.rows()
    nights.run(profiles=nights.profiles, since="2026-01-06", until="2026-01-06")
    moved = {each for each, row in nights.rows().items() if row != before[each]}
    assert moved == moments.keys() - {"the last of the 5th", "the first of the 7th"}


def test_limits_out_of_order_are_refused(nights: Nights) -> None:
    with pytest.raises(ValidationError, match="--since 2026-01-07 is after --until 2026-01-06"):
        nights.config(since="2026-01-07", until="2026-01-06")


# --- the law of mixtures ---

traces = st.builds(
    lambda day, hour, words, domain, confidence: {
        "day": day,
        "hour": hour,
        "words": words,
        "task_domain": domain,
        "confidence": confidence,
    },
    st.integers(5, 9),
    st.integers(0, 23),
    st.sampled_from(["fix the import", "fix the export", "sum the rows", "!", "plan a trip"]),
    st.sampled_from(["code", "finance"]),
    st.sampled_from([0.2, 0.9]),
)
archives = st.lists(st.none() | traces, min_size=9, max_size=9).filter(any)
scorers = st.fixed_dictionaries(
    {"cache_size": st.integers(1, 4), "ttl": st.sampled_from(["none", "2h", "1d"])}
)
days = st.none() | st.sampled_from([f"2026-01-{day:02d}" for day in range(5, 10)])
limits = st.tuples(days, days).map(
    lambda both: dict(zip(("since", "until"), sorted(both) if all(both) else both, strict=True))
)


def cache_id(scorer: dict[str, Any]) -> str:
    return f"fifo-{scorer['cache_size']}-ttl-{scorer['ttl']}-v1"


def content(given: list[Any]) -> list[dict[str, Any]]:
    return [said(f"t{n}", **each) for n, each in enumerate(given) if each]


@given(
    before=st.tuples(archives, scorers),
    after=st.tuples(archives, scorers),
    limits=limits,
    reweighted=st.booleans(),
)
@settings(
    max_examples=3,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_law_each_row_is_that_of_a_full_run_with_the_settings_that_it_bears(
    tmp_path_factory: pytest.TempPathFactory,
    before: Any,
    after: Any,
    limits: dict[str, Any],
    *,
    reweighted: bool,
) -> None:
    nights = Nights(tmp_path_factory.mktemp("law"))
    write_jsonl(nights.archive / "a.jsonl", content(before[0]))
    nights.run(**before[1])
    write_jsonl(nights.archive / "a.jsonl", content(after[0]))
    settings = after[1] | ({"profiles": nights.profiles} if reweighted else {})
    nights.run(**settings, **limits)
    now = nights.rows()
    full, wanted = {}, {}
    for scorer in (before[1], after[1]):
        for profiles in dict.fromkeys((None, settings.get("profiles"))):
            wanted = nights.in_full(**scorer, profiles=profiles)
            for row in wanted.values():
                full[row["trace_id"], row["cache_id"], row["profile_id"]] = row
    for each, row in now.items():
        key = (each, row["cache_id"], row["profile_id"])
        assert without_run(row) == without_run(full[key])
        if (limits["since"] or "") <= str(row["created_at"].date()) <= (limits["until"] or "9"):
            assert row["cache_id"] == cache_id(after[1])
    nights.run(**settings)
    assert {each: without_run(row) for each, row in nights.rows().items()} == {
        each: without_run(row) for each, row in wanted.items()
    }
