"""What a plan tells, against counts made by looking at every window, and against what is done."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import kp_batch.ingest.scan
import kp_batch.ingest.stage
import kp_batch.planning.changes
from kp_batch.planning.plan import _estimated_seconds
from kp_batch.scoring.profiles import load_profiles
from kp_batch.warehouse.manifest import read_manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.reasons import Reason
from kp_batch.warehouse.snapshot import published
from tests.support.make.nights import PROFILE, Night, Trace
from tests.support.read.folders import keep, restore

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 5, tzinfo=UTC)
DOMAINS = ("code", "finance", "poetry")
HOUR = timedelta(hours=1)


TRACES = [
    Trace(
        START + 5 * number * HOUR, f"id{number:02d}", DOMAINS[number // 4 % 3], f"word{number % 7}"
    )
    for number in range(40)
]
NO_FILES: dict[str, list[str]] = {
    name: []
    for name in (
        *("new", "changed", "back", "gone"),
        *("unreadable", "pruned", "excluded"),
    )
}
NOTHING_REFUSED: dict[str, Any] = {
    "excluded_kept": 0,
    "rows_of_earlier": 0,
    "rows_rejected": 0,
    "rejected_by_code": {},
    "excess": None,
    "unused_profiles": {},
    "cache_by": "none",
    "caches": None,
    "traces_without_value": 0,
}
LATE = Trace(START + 52 * HOUR, "late", "finance", "a late word")


def reason(code: str, words: str, **more: Any) -> dict[str, Any]:
    """A reason as JSON has it."""
    return asdict(Reason(code, words, **more))


@pytest.fixture(scope="module")
def after_first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights") / "made"
    night = Night(folder)
    night.write(TRACES)
    night.run()
    keep(folder)
    return folder


@pytest.fixture
def night(after_first: Path) -> Night:
    """Run once."""
    restore(after_first)
    return Night(after_first)


def days(traces: Iterable[Trace]) -> list[str]:
    return sorted({f"{trace.at:%F}" for trace in traces})


def work(
    replay: Iterable[Trace], rescore: Iterable[Trace] = (), reweight: Iterable[Trace] = ()
) -> list[dict[str, Any]]:
    """By domain and day: what is replayed or reweighted is rescored."""
    replay, reweight = list(replay), list(reweight)
    counts = [
        Counter((f"{trace.at:%F}", trace.domain) for trace in several)
        for several in (replay, {*replay, *rescore, *reweight}, reweight)
    ]
    names = ("task_domain", "day", "replay", "rescore", "reweight")
    return [
        dict(zip(names, (domain, day, *(count[day, domain] for count in counts)), strict=True))
        for day, domain in sorted(counts[1])
    ]


def windows(
    traces: Sequence[Trace], size: int, ttl: timedelta | None
) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    """What each trace meets; of a trace only time, id and text count."""
    order = [(trace.at, trace.id, trace.words) for trace in sorted(traces)]
    return {
        key: [
            other
            for other in order[max(row - size, 0) : row]
            if ttl is None or other[0] > key[0] - ttl
        ]
        for row, key in enumerate(order)
    }


def meeting_others(
    old: Sequence[Trace], new: Sequence[Trace], size: int = 6, ttl: timedelta | None = None
) -> list[Trace]:
    before, now = windows(old, size, ttl), windows(new, size, ttl)
    keys = {trace: (trace.at, trace.id, trace.words) for trace in new}
    return [trace for trace, key in keys.items() if before.get(key) != now[key]]


def test_a_first_run_replays_all(tmp_path: Path) -> None:
    night = Night(tmp_path)
    night.write(TRACES)
    plan = night.plan()
    files = [str(night.folder / "archive" / f"{day}.jsonl") for day in days(TRACES)]
    assert plan == {
        "reasons": [
            reason("new_warehouse", "a new warehouse"),
            reason("files_new", f"{len(files)} files new", new=len(files)),
        ],
        "files": NO_FILES | {"new": files},
        **NOTHING_REFUSED,
        "texts_to_embed": 7,
        "traces_to_replay": 40,
        "traces_to_rescore": 40,
        "traces_to_reweight": 0,
        "traces_to_remove": 0,
        "loss": None,
        "pruned": None,
        "domains": 3,
        "largest_domains": {"code": 16, "finance": 12, "poetry": 12},
        "by_domain_and_day": work(TRACES),
        "partitions": days(TRACES),
        "future_partitions": [],
        "pending": ["settings", "files", "scores", "profiles"],
        "estimated_seconds": None,
    }
    night.check(plan)


@pytest.mark.telling
def test_a_name_of_a_megabyte_is_shortened(night: Night) -> None:
    night.write([TRACES[0]._replace(domain="x" * (1 << 20))])
    assert len(str(night.described())) < 1_000


def test_with_nothing_to_do_nothing_differs(night: Night) -> None:
    plan = night.plan()
    assert plan == {
        "reasons": [],
        "files": NO_FILES,
        **NOTHING_REFUSED,
        "texts_to_embed": 0,
        "traces_to_replay": 0,
        "traces_to_rescore": 0,
        "traces_to_reweight": 0,
        "traces_to_remove": 0,
        "loss": None,
        "pruned": None,
        "domains": 0,
        "largest_domains": {},
        "by_domain_and_day": [],
        "partitions": [],
        "future_partitions": [],
        "pending": [],
        "estimated_seconds": 0,
    }
    assert str(night.described()) == "nothing to do (no file changed)"


def test_a_late_trace_replays_it_and_those_that_meet_it(night: Night) -> None:
    night.settings["ttl"] = 12 * HOUR
    night.run()
    night.write([*TRACES, LATE])
    plan = night.plan()
    others = meeting_others(TRACES, [*TRACES, LATE], ttl=12 * HOUR)
    assert len(others) == 3
    assert plan["by_domain_and_day"] == work(others)
    assert plan["partitions"] == days(others)
    assert (plan["texts_to_embed"], plan["traces_to_replay"]) == (1, 3)
    assert plan["files"]["changed"] == [str(night.folder / "archive" / f"{LATE.at:%F}.jsonl")]
    assert plan["pending"] == ["files", "scores"]
    night.check(plan)


def test_a_removed_trace_replays_those_that_met_it_and_another_domain_rescores_its_trace_alone(
    night: Night,
) -> None:
    remaining = [
        trace._replace(domain="finance") if trace.id == "id03" else trace
        for trace in TRACES
        if trace.id != "id20"
    ]
    night.write(remaining)
    plan = night.plan()
    others = meeting_others(TRACES, remaining)
    assert len(others) == 6
    assert plan["by_domain_and_day"] == work(others, rescore=[remaining[3]])
    assert plan["partitions"] == days([*others, remaining[3]])
    assert (plan["texts_to_embed"], plan["traces_to_remove"]) == (0, 1)
    assert (plan["traces_to_rescore"], plan["traces_to_reweight"]) == (7, 0)
    night.check(plan)


def test_a_changed_default_profile_reweights_the_domains_without_their_own_alone(
    night: Night,
) -> None:
    night.profile("default")
    plan = night.plan()
    of_it = [trace for trace in TRACES if trace.domain == "poetry"]
    assert plan["by_domain_and_day"] == work([], reweight=of_it)
    assert plan["partitions"] == days(of_it)
    assert (plan["traces_to_rescore"], plan["traces_to_reweight"]) == (len(of_it), len(of_it))
    assert plan["pending"] == ["settings", "scores", "profiles"]
    night.check(plan)


def test_a_profile_that_no_trace_bears_changes_the_profiles_alone(night: Night) -> None:
    before = read_manifest(night.folder / "wh")
    night.profile("legal")
    for _ in ("there", "and back"):
        plan = night.described()
        assert plan.pending == ["settings", "profiles"]
        assert str(plan).splitlines()[0] == "plan: rescore 0 traces"
        assert (plan.by_domain_and_day, plan.partitions, plan.estimated_seconds) == ((), [], 0)
        night.check(asdict(plan))
        after = read_manifest(night.folder / "wh")
        assert before
        assert after
        assert after.tables["scores"] == before.tables["scores"]
        with connect(night.folder / "wh") as connection:
            ids = {
                profile_id
                for (profile_id,) in connection.execute(
                    "SELECT profile_id FROM profiles"
                ).fetchall()
            }
        loaded = load_profiles(night.settings.get("profiles"))
        assert ids == {profile.profile_id for profile in loaded.profiles}
        assert night.plan()["pending"] == []
        assert night.run().run_id is None
        night.settings.pop("profiles", None)


def test_a_late_trace_and_a_changed_profile_as_data_and_as_text(night: Night) -> None:
    night.write([*TRACES, LATE])
    night.profile("code")
    description = night.described()
    plan = asdict(description)
    others = meeting_others(TRACES, [*TRACES, LATE])
    rest = [trace for trace in TRACES if trace.domain == "code" and trace not in others]
    assert [*plan["by_domain_and_day"]] == work(others, reweight=rest)
    assert plan["partitions"] == days([*others, *rest])
    assert (
        str(replace(description, estimated_seconds=1234.5, by_domain_and_day=None))
        == """\
plan: rescore 19 traces (code 16, finance 2, poetry 1)
  why        weights of code: complexity 0.2 → 0.1, novelty 0.3 → 0.2, outcome_confidence 0.2 → 0.4
             files: 1 changed
  embed      1 text
  replay     7 traces
  reweight   12 traces: only their weights differ
  rewrite    6 partitions from 2026-01-05 to 2026-01-13
  time       about 1,234 s"""
    )
    night.check(plan)


def test_another_date_rescores_what_lies_between_alone(night: Night) -> None:
    moments = sorted({trace.at for trace in TRACES if trace.domain == "code"})
    night.weigh_code_from(moments[2])  # within a day, and that of a trace
    night.run()
    night.weigh_code_from(moments[5])
    between = [
        trace for trace in TRACES if trace.domain == "code" and moments[2] <= trace.at < moments[5]
    ]
    plan = night.plan()
    assert plan["by_domain_and_day"] == work([], reweight=between)
    assert plan["partitions"] == days(between)
    assert [entry["code"] for entry in plan["reasons"]] == ["weights"]
    night.check(plan)


def test_another_threshold_touches_no_trace(night: Night) -> None:
    night.settings["threshold"] = 0.5
    plan = night.plan()
    assert plan["pending"] == ["settings"]
    words = "threshold 0.75 \N{RIGHTWARDS ARROW} 0.5"
    assert plan["reasons"] == [reason("threshold", words, old=0.75, new=0.5)]
    assert (plan["by_domain_and_day"], plan["partitions"], plan["estimated_seconds"]) == ([], [], 0)
    night.check(plan)


def test_another_cache_size_replays_what_would_meet_others_and_counts_in_later_estimates(
    night: Night,
) -> None:
    night.settings["cache_size"] = 5
    plan = night.plan()
    assert plan["by_domain_and_day"] == work(sorted(TRACES)[6:], rescore=TRACES)
    assert plan["partitions"] == days(TRACES)
    assert (plan["texts_to_embed"], plan["pending"]) == (0, ["settings", "scores"])
    night.check(plan)  # embeds nothing
    with connect(night.folder / "wh") as connection:
        rows = connection.execute("SELECT counts, seconds FROM runs ORDER BY started_at").fetchall()
    (first, spent), (second, later) = [[json.loads(column) for column in row] for row in rows]
    rate = {
        step: (spent[step] + later[step]) / (first[unit] + second[unit])
        for step, unit in (("replay", "replayed"), ("write", "partitions"))
    }
    night.write([*TRACES, LATE])
    expected = spent["embed"] / 7 + 6 * rate["replay"] + 2 * rate["write"]
    assert night.plan()["estimated_seconds"] == pytest.approx(expected)
    assert night.plan(embedder="none")["estimated_seconds"] is None  # its rates are others


def test_the_rate_of_a_step_is_that_of_the_last_runs_that_had_it(night: Night) -> None:
    [first] = published(night.folder / "wh").runs()
    assert first.counts
    idle = replace(first, counts=first.counts.without_work)
    estimate = _estimated_seconds(night.config(), first.counts, [first])
    assert estimate
    assert _estimated_seconds(night.config(), first.counts, [first, *[idle] * 10]) == estimate
    assert _estimated_seconds(night.config(), first.counts, [idle]) is None


def test_the_estimate_grows_with_the_work(night: Night) -> None:
    more: list[Trace] = []
    estimates = [night.plan()["estimated_seconds"]]
    for number in range(3):
        more += [
            LATE._replace(at=LATE.at + (24 * number + hour) * HOUR, id=f"{number}-{hour}")
            for hour in range(1 + number)
        ]
        night.write([*TRACES, *more])
        estimates.append(night.plan()["estimated_seconds"])
    assert estimates == sorted(set(estimates))
    assert estimates[0] == 0


def test_rows_that_an_earlier_version_read_are_reported(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, *_] = sorted((night.folder / "archive").iterdir())
    rows = len(first.read_text().splitlines())
    first.unlink()
    assert night.described().rows_of_earlier == 0
    for module in (kp_batch.ingest.stage, kp_batch.ingest.scan, kp_batch.planning.changes):
        monkeypatch.setattr(module, "VERSION", "-v99")
    description = night.described()
    assert description.rows_of_earlier == rows > 0
    line = f"  keep       {rows} rows that only an earlier kp_batch read: their files are gone, "
    assert line in str(description)
    assert night.run().counts.rows_of_earlier == rows
    assert night.described().rows_of_earlier == rows  # with nothing to do


def test_a_plan_as_text_names_few_of_many_reasons(night: Night) -> None:
    path = night.folder / "profiles.toml"
    path.write_text("".join(PROFILE.format(name=f"p{number:02d}") for number in range(15)))
    lines = str(night.described(profiles=path)).splitlines()
    assert [line[13:28] for line in lines[1:14]] == [
        *(f"weights of p{number:02d}:" for number in range(12)),
        "and 3 more",
    ]


def test_a_plan_as_text_names_the_domains_with_the_most_traces_alone(tmp_path: Path) -> None:
    night = Night(tmp_path)
    domains = [*"gfedcbaaffg"]
    night.write([trace._replace(domain=name) for trace, name in zip(TRACES, domains, strict=False)])
    description = night.described(by_domain_and_day=False)
    assert description.by_domain_and_day is None
    assert (description.domains, list(description.largest_domains.items())) == (
        7,
        [("f", 3), ("a", 2), ("g", 2), ("b", 1), ("c", 1)],
    )
    [line] = [line for line in str(description).splitlines() if "rescore" in line]
    assert line == "plan: rescore 11 traces (f 3, a 2, g 2, b 1, c 1, 2 more)"


def test_domains_that_would_steer_a_terminal_are_written_out(tmp_path: Path) -> None:
    night = Night(tmp_path)
    hostile = ["\x1b[31mred", "two\nlines\r", "\u202e back"]
    night.write([trace._replace(domain=name) for trace, name in zip(TRACES, hostile, strict=False)])
    description = night.described()
    assert {row["task_domain"] for row in description.by_domain_and_day} == set(hostile)
    line, *others = str(description).splitlines()
    assert all(each.isprintable() for each in (line, *others))
    for written in (r"\x1b[31mred 1", r"two\nlines\r 1", r"\u202e back 1"):
        assert written in line
