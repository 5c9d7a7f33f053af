"""A sweep's scores are those of runs with the same settings, to the bit."""

import json
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import product
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import kp_batch.operations.sweep
import kp_batch.pipeline.replay_spans
from kp_batch.cli.sweep import kp_batch as group
from kp_batch.config import RescoreConfig
from kp_batch.embedding.chunks import write_chunk
from kp_batch.errors import KpBatchError, ResourceError, WarehouseError
from kp_batch.novelty.cache import VectorCache, novelty
from kp_batch.novelty.cache_settings import CacheSettings
from kp_batch.operations.compare import compare
from kp_batch.operations.forget import forget
from kp_batch.operations.sweep import CacheGrouping, sweep, sweep_span, sweep_spans
from kp_batch.operations.sweep_result import Sweep, Variants
from kp_batch.operations.sweep_values import SweepValues
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.scoring.profiles import load_profiles
from kp_batch.vectors import Float32s, normalised
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.staging import Staging
from tests.support.make.archives import record_scores, trace, write_jsonl
from tests.support.make.runs import config
from tests.support.make.sample import write_sample
from tests.support.processes.buckets import Machine
from tests.support.processes.commands import check_signal, invoke, linux, working
from tests.support.read.errors import fails_with
from tests.support.read.folders import keep, listing, restore
from tests.support.read.queries import ask_rows
from tests.support.read.schemas import TypeAdapter

pytestmark = pytest.mark.slow

CURRENT = {"cache_by": "none", "cache_size": 40, "ttl": "3h", "threshold": 0.55}
CROSSED = ("now_reach", "no_longer_reach")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    for host in ("a", "b"):
        (folder / f"host={host}").mkdir()
    write_sample(folder / "host=a", traces=180, days=3, seed=5)
    record_scores(folder / "host=a", seed=5)
    at_once = (
        trace(id=f"{number * 7 % 20:02d}", objective=f"task {number}") for number in range(20)
    )
    write_jsonl(folder / "host=b" / "at-once.jsonl", at_once)
    return folder


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> RescoreConfig:
    own = config(tmp_path_factory.mktemp("scored"), archive, **CURRENT)
    rescore_archive(own)
    keep(own.warehouse)
    return own


@pytest.fixture
def scored(once: RescoreConfig) -> RescoreConfig:
    """The settings of a warehouse's only run."""
    restore(once.warehouse)
    return once


def swept(warehouse: Path, **options: Any) -> Sweep:
    return sweep(warehouse, SweepValues(**options))


def named(row: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(row[name] for name in CURRENT)


def of_runs(own: RescoreConfig, **changed: Any) -> list[dict[str, Any]]:
    """What a second run of the warehouse leaves, and how it compares with its first."""
    again = RescoreConfig.model_validate({**own.model_dump(), **changed})
    rescore_archive(again)
    [(first,)] = ask_rows(own.warehouse, "SELECT min(run_id) FROM runs")
    aggregates = ask_rows(
        again.warehouse,
        """
        WITH own AS (
            SELECT s.*, abs(score - recorded_score) AS error, shows_novelty(
                recorded_score, p.novelty, single_thought, recovery_bonus, low_diversity_penalty
            ) AS is_recorded
            FROM scores AS s JOIN profiles AS p USING (profile_id)
        )
        SELECT task_domain, score_mean(novelty), count(*) FILTER (meets_threshold),
            count(*) FILTER (is_recorded), score_mean(CASE WHEN is_recorded THEN error END)
        FROM own GROUP BY ROLLUP (task_domain)
        """,
    )
    of_domain = {domain: means for domain, *means in aggregates}
    return [
        {
            **{name: row[name] for name in ("task_domain", "traces", *CROSSED)},
            **changed,
            "is_current": changed == CURRENT,
            "mean_novelty": of_domain[row["task_domain"]][0],
            "mean_score": row["after_mean"],
            "rank_correlation": pytest.approx(row["rank_correlation"], abs=1e-12),
            "recorded": of_domain[row["task_domain"]][2],
            "recorded_error": of_domain[row["task_domain"]][3],
            "recorded_share": 0.0,
            "at_threshold": of_domain[row["task_domain"]][1],
        }
        for row in compare(own.warehouse, first, "latest").domains
    ]


@pytest.mark.torture
def test_each_combination_scores_every_trace_as_a_run_with_these_settings(
    tmp_path: Path, scored: RescoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.operations.sweep, "RANGE_ROWS", 64)
    staging = Staging(tmp_path / "staging")
    monkeypatch.setattr(Staging, "temporary", lambda: nullcontext(staging))
    options = {
        "cache_by": ("host", "none", "agent_id+host"),
        "cache_size": (1, 40, 10**6),
        "ttl": ("none", "1s", "3h"),
        "threshold": (0.1, 0.55, 0.7),
    }
    result = swept(scored.warehouse, **options)
    assert result.traces == 200
    combinations = list(product(*options.values()))
    assert len(result.variants) == len(combinations) * len(
        {row["task_domain"] for row in result.variants}
    )
    assert [row["is_current"] for row in result.variants].count(True) == len(result.variants) / len(
        combinations
    )
    current = dict(ask_rows(scored.warehouse, "SELECT trace_id, score FROM scores"))
    for combination, place, number in (
        (("host", 10**6, "1s", 0.1), 2, 6),
        (("agent_id+host", 40, "none", 0.55), 1, 5),
    ):
        outcomes = [row for row in result.variants if named(row) == combination]
        assert outcomes == of_runs(scored, **dict(zip(CURRENT, combination, strict=True))), (
            combination
        )
        files = sorted((staging.folder / f"{place}" / "replayed").iterdir())
        assert len(files) == 4
        rows = pl.concat(pl.read_parquet(file) for file in files)
        by_run = ask_rows(
            scored.warehouse,
            "SELECT novelty, score, trace_id FROM scores "
            "ORDER BY cache_group, created_at, trace_id",
        )
        replayed = rows.filter(cache=number).select("novelty", "score", "current_score")
        assert replayed.rows() == [(*row[:2], current[row[2]]) for row in by_run], combination


CACHES = st.builds(
    CacheSettings,
    st.integers(1, 20),
    st.none() | st.integers(1, 4).map(lambda seconds: timedelta(seconds=seconds)),
)
VECTORS = ((1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 1, 1), (-1, 0, 0, 0), (0, 0, 0, 0))
Row = tuple[int, tuple[int, ...]]  # of a trace: its time in microseconds, its vector
ROWS: st.SearchStrategy[Row] = st.tuples(
    st.integers(0, 6).map(lambda number: number * 500_000), st.sampled_from(VECTORS)
)
GROUPS = st.lists(ROWS, min_size=1, max_size=15).map(lambda rows: sorted(rows, key=itemgetter(0)))


def one_by_one(cache: CacheSettings, rows: list[Row], vectors: Float32s) -> Iterator[float]:
    """The novelty of each trace at its time."""
    live = VectorCache(cache.size, vectors.shape[1], cache.ttl)
    for (time, _), vector in zip(rows, vectors, strict=True):
        now = datetime.fromtimestamp(time / 1e6, UTC)
        similarity = live.max_cosine_similarity(vector, now)
        live.add(vector, now)
        yield 0.5 if similarity is None else float(novelty(similarity))


@settings(
    max_examples=10,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(GROUPS, min_size=1, max_size=4),
    st.lists(CACHES, min_size=1, max_size=4, unique=True),
    st.integers(1, 6),
)
def test_however_spans_are_cut_each_groups_caches_are_those_of_its_whole_history(
    monkeypatch: pytest.MonkeyPatch,
    groups: list[list[Row]],
    caches: list[CacheSettings],
    length: int,
) -> None:
    monkeypatch.setattr(kp_batch.operations.sweep, "RANGE_ROWS", length)
    rows = [row for group in groups for row in group]
    vectors = normalised(np.array([vector for _, vector in rows], dtype=np.float64))
    grouping = CacheGrouping((), {cache: set() for cache in caches})
    with TemporaryDirectory() as folder:
        staging = Staging(Path(folder))
        staging.make()
        chunk = write_chunk(Path(folder), pl.Series(map(str, range(len(rows)))), vectors)
        numbers = pl.int_range(len(rows), dtype=pl.Int32, eager=True)
        pl.DataFrame({"chunk": chunk, "row": numbers}).write_parquet(staging.vectors)
        staged(groups).write_parquet(staging.replay)
        profiles = load_profiles()
        files = [
            sweep_span(span, grouping, profiles, Path(folder), staging)
            for span in sweep_spans(staging, caches)
        ]
        result = pl.concat(pl.read_parquet(file) for file in files)
    for number, cache in enumerate(grouping.caches):
        wanted: list[float] = []
        for members in groups:
            wanted += one_by_one(cache, members, vectors[len(wanted) :][: len(members)])
        assert result.filter(cache=number)["novelty"].to_list() == wanted


def staged(groups: list[list[Row]]) -> pl.DataFrame:
    """Rows of some groups as sweep_rows.sql makes them."""
    lengths = np.array(list(map(len, groups)))
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    [profile] = [profile for profile in load_profiles().profiles if profile.name == "code"]
    times = [time for group in groups for time, _ in group]
    return pl.DataFrame({"first": first, "created_at": times}).with_columns(
        pl.col("created_at").cast(pl.Datetime("us", "UTC")),
        task_domain=pl.lit("code"),
        profile_id=pl.lit(profile.profile_id),
        **dict.fromkeys(("current_novelty", "current_score", "recorded_score"), pl.lit(0.25)),
        **dict.fromkeys(("complexity", "tool_diversity", "outcome_confidence"), pl.lit(0.5)),
        **dict.fromkeys(
            ("single_thought", "recovery_bonus", "low_diversity_penalty"), pl.lit(value=False)
        ),
    )


@pytest.mark.telling
def test_missing_vectors_are_made_by_what_the_message_says(scored: RescoreConfig) -> None:
    shutil.rmtree(Layout(scored.warehouse).all_vectors)
    message = (
        r"^200 vectors of .* are not in .*; kp-batch run .* --restore-vectors makes them again"
    )
    with pytest.raises(WarehouseError, match=message):
        swept(scored.warehouse)
    rescore_archive(scored.model_copy(update={"restore_vectors": True}))
    assert swept(scored.warehouse).traces == 200


def test_a_warehouse_without_an_encoder_has_no_vectors_to_sweep(scored: RescoreConfig) -> None:
    rescore_archive(scored.model_copy(update={"embedder": "none"}))
    with fails_with(KpBatchError, "no_encoder", r"encoder, .* with an --embedder first"):
        swept(scored.warehouse)


def test_a_warehouse_without_a_score_has_none_to_sweep(tmp_path: Path) -> None:
    with fails_with(WarehouseError, "no_warehouse"):
        swept(tmp_path)
    lone = write_jsonl(tmp_path / "a.jsonl", [trace(id="lone")])
    rescore_archive(config(tmp_path, lone))
    result = swept(tmp_path / "warehouse", cache_size=[1, 10**17], ttl=["1s", "none"])
    outcomes = {(row["mean_novelty"], row["rank_correlation"]) for row in result.variants}
    assert outcomes == {(0.5, None)}
    forget(tmp_path / "warehouse", ["lone"])
    with pytest.raises(WarehouseError, match=r"no trace is scored in .*warehouse; run an archive"):
        swept(tmp_path / "warehouse")


@pytest.mark.telling
def test_a_grouping_of_which_no_trace_has_a_value_is_refused(scored: RescoreConfig) -> None:
    message = "there is no plane; choose from agent_id, framework, task_domain, host$"
    with pytest.raises(KpBatchError, match=message):
        swept(scored.warehouse, cache_by=["host", "plane"])


@pytest.mark.telling
def test_windows_that_fit_into_no_memory_are_refused(
    scored: RescoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.pipeline.replay_spans, "available_bytes", lambda: 512 << 20)
    with pytest.raises(ResourceError, match=r"the vectors of 200 traces .* a smaller cache"):
        swept(scored.warehouse)


@pytest.mark.telling
@pytest.mark.parametrize(
    ("option", "value", "got"),
    [
        *(("--cache-by", value, got) for value, got in (("a b", "a b"), ("host,none+a", "none+a"))),
        *(
            ("--cache-size", value, got)
            for value, got in (("0", "0"), ("8,x", "x"), ("1.5", "1.5"))
        ),
        *(
            ("--cache-size", value, got)
            for value, got in (("", ""), ("5,", ""), ("9" * 19, "9" * 19))
        ),
        *(("--ttl", value, got) for value, got in (("7d,0s", "0s"), ("7", "7"), ("-1d", "-1d"))),
        *(("--threshold", value, got) for value, got in (("0.7,1.1", "1.1"), ("nan", "nan"))),
    ],
)
def test_a_wrong_value_is_reported_with_its_option(
    tmp_path: Path, option: str, value: str, got: str
) -> None:
    with pytest.raises(click.UsageError) as wrong:
        group.main(["sweep", "--warehouse", str(tmp_path), option, value], standalone_mode=False)
    assert wrong.value.exit_code == 2
    assert option in wrong.value.format_message()
    assert wrong.value.format_message().endswith((f"got {got!r}", f"got {got}"))


@pytest.mark.telling
def test_the_command_prints_the_same_in_all_forms_and_changes_nothing(
    scored: RescoreConfig,
) -> None:
    before = listing(scored.warehouse)
    arguments = [
        "sweep",
        "--warehouse",
        scored.warehouse,
        "--cache-size",
        "7, 40",
        "--ttl",
        "60m,3h",
    ]
    arguments += ["--cache-by", "none"]
    done = invoke(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    result = TypeAdapter(Sweep).validate_json(done.stdout)
    assert result == swept(
        scored.warehouse, cache_by=["none"], cache_size=(7, 40), ttl=("1h", "3h")
    )
    assert json.loads(done.stdout).keys() == asdict(result).keys()
    shown = invoke(*arguments)
    assert shown.stdout == f"{result!s}\n"
    assert max(map(len, shown.stdout.splitlines())) <= 120
    overall = [row for row in result.variants if row["task_domain"] is None]
    [current] = [row for row in overall if row["is_current"]]
    [line] = re.findall(r"^all domains.*\n(?:.+\n)*?(.* current)$", shown.stdout, re.MULTILINE)
    assert line.split()[:5] == ["none", "40", "3h", "0.55", f"{current['mean_novelty']:.4f}"]
    assert listing(scored.warehouse) == before


def variant(**changes: Any) -> dict[str, Any]:
    """The current combination, over all domains."""
    cache: dict[str, Any] = {
        "cache_by": "none",
        "cache_size": 40,
        "ttl": "3h",
        "threshold": 0.5,
        "is_current": True,
    }
    means = {"traces": 100, "mean_novelty": 0.5, "mean_score": 0.5, "rank_correlation": None}
    recorded = {"recorded": 0, "recorded_error": None, "recorded_share": None}
    reaching = {"at_threshold": 1, "now_reach": 0, "no_longer_reach": 0}
    return {"task_domain": None, **cache, **means, **recorded, **reaching, **changes}


def test_recorded_scores_are_a_column_where_there_are_any() -> None:
    assert "recorded" not in str(Sweep("an encoder", 100, Variants([variant()])))
    known = {"recorded": 80, "recorded_error": 0.01, "recorded_share": 0.875}
    text = str(Sweep("an encoder", 100, Variants([variant(**known)])))
    assert re.search(r"no longer  recorded.*\n.* 87.5%  current$", text)
    assert "\n  recorded: the share of recorded scores that" in text


@pytest.mark.telling
@pytest.mark.parametrize(("domains", "more"), [(10, None), (11, "1 more domain"), (12, "2 more d")])
def test_a_terminal_shows_the_domains_with_the_most_traces(domains: int, more: str | None) -> None:
    one = variant()
    others = [{**one, "task_domain": f"d{n:02}", "traces": n + 1} for n in range(domains)]
    text = str(Sweep("an encoder", 100, Variants([one, *others])))
    assert re.findall(r"^d\d\d, ", text, re.MULTILINE) == [
        f"{row['task_domain']}, " for row in others[-10:]
    ]
    assert (more is None) == ("more domain" not in text)
    last = text.rpartition("\n\n")[2]
    assert more is None or (
        last.startswith(more) and last.endswith("--json, or variants in Python")
    )


@pytest.mark.process
@linux
def test_a_signal_ends_a_sweep_within_two_seconds(
    tmp_path: Path, scored: RescoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    sizes = ",".join(map(str, range(1, 5_000)))  # some 20 s of work
    with working("sweep", "--warehouse", scored.warehouse, "--cache-size", sizes) as asking:
        assert asking.stderr
        assert asking.stderr.readline().startswith("kp-batch: replaying: ")
        check_signal(asking, signal.SIGINT, 130)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.telling
@pytest.mark.process
def test_a_warehouse_in_a_bucket_is_swept_from_its_copy(
    tmp_path: Path, bucket: str, archive: Path, scored: RescoreConfig
) -> None:
    first, second = (Machine(tmp_path / name, f"{bucket}/warehouse") for name in ("a", "b"))
    first.run(archive, **CURRENT)
    with second.here():
        done = invoke("sweep", "--warehouse", second.url, "--cache-size", 7, "--json")
    assert done.returncode == 0, done.stderr
    assert TypeAdapter(Sweep).validate_json(done.stdout) == swept(scored.warehouse, cache_size=[7])
