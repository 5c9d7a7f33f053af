"""A sweep's scores are those of runs with the same settings, to the bit."""

import json
import re
import shutil
import signal
from contextlib import nullcontext
from dataclasses import asdict, replace
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
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

import kp_batch.operations.sweep
import kp_batch.pipeline.preflight
from kp_batch.cli.sweep import kp_batch as group
from kp_batch.config import RescoreConfig
from kp_batch.embedding.chunks import write_chunk
from kp_batch.errors import KpBatchError, ResourceError, WarehouseError
from kp_batch.novelty.cache import VectorCache, novelty
from kp_batch.novelty.cache_settings import CacheSettings
from kp_batch.operations.compare import compare
from kp_batch.operations.forget import forget
from kp_batch.operations.sweep import SWEPT, Grouping, sweep, sweep_span, sweep_spans
from kp_batch.operations.sweep_result import COLUMNS, Outcome, Sweep, sweep_text
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.scoring.profiles import load_profiles
from kp_batch.vectors import Float32s, normalised
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.staging import Staging
from tests.support.archives import record_scores, trace, write_jsonl
from tests.support.buckets import Machine
from tests.support.commands import check_signal, invoke, linux, working
from tests.support.folders import keep, listing, restore
from tests.support.runs import ask, config
from tests.support.sample import write_sample

pytestmark = pytest.mark.slow

IN_FORCE = {"cache_by": "none", "cache_size": 40, "ttl": "3h", "threshold": 0.55}


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
    own = config(tmp_path_factory.mktemp("scored"), archive, **IN_FORCE)
    rescore_archive(own)
    keep(own.warehouse)
    return own


@pytest.fixture
def scored(once: RescoreConfig) -> RescoreConfig:
    """The settings of a warehouse's only run."""
    restore(once.warehouse)
    return once


def swept(warehouse: Path, **options: Any) -> Sweep:
    return sweep(warehouse, **options)


def of_runs(own: RescoreConfig, **changed: Any) -> list[Outcome]:
    """What a second run of the warehouse leaves, and how it compares with its first."""
    again = RescoreConfig.model_validate({**own.model_dump(), **changed})
    rescore_archive(again)
    [(first,)] = ask(own, "SELECT min(run_id) FROM runs")
    aggregates = ask(
        again,
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
        Outcome(
            **changed,
            task_domain=row.task_domain,
            in_force=changed == IN_FORCE,
            traces=row.traces,
            mean_novelty=of_domain[row.task_domain][0],
            mean_score=row.second_mean,
            mean_change=pytest.approx(row.second_mean - row.first_mean, abs=3e-12),
            rank_correlation=pytest.approx(row.rank_correlation, abs=1e-12),
            recorded=of_domain[row.task_domain][2],
            recorded_error=of_domain[row.task_domain][3],
            recorded_share=0.0,
            implied_restarts=0,
            worth_sharing=of_domain[row.task_domain][1],
            now_reach=row.now_reach,
            no_longer_reach=row.no_longer_reach,
        )
        for row in compare(own.warehouse, first, "latest").domains
    ]


def test_each_combination_scores_every_trace_as_a_run_with_these_settings(
    tmp_path: Path, scored: RescoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.operations.sweep, "RANGE_ROWS", 64)
    staging = Staging(tmp_path / "staging")
    monkeypatch.setattr(Staging, "temporary", lambda: nullcontext(staging))
    options = {
        "cache_by": ("host", "none", "agent_id+host"),
        "sizes": (1, 40, 10**6),
        "ttls": ("none", "1s", "3h"),
        "thresholds": (0.1, 0.55, 0.7),
    }
    result = swept(scored.warehouse, **options)
    assert result.traces == 200
    combinations = list(product(*options.values()))
    assert len(result.outcomes) == len(combinations) * len(
        {row.task_domain for row in result.outcomes}
    )
    assert [row.in_force for row in result.outcomes].count(True) == len(result.outcomes) / len(
        combinations
    )
    in_force = dict(ask(scored, "SELECT trace_id, score FROM scores"))
    for combination, place, number in (
        (("none", 40, "3h", 0.55), 0, 0),
        (("none", 1, "none", 0.7), 0, 1),
        (("host", 10**6, "1s", 0.1), 2, 7),
        (("agent_id+host", 40, "none", 0.55), 1, 3),
    ):
        outcomes = [row for row in result.outcomes if (*row.cache, row.threshold) == combination]
        assert outcomes == of_runs(scored, **dict(zip(IN_FORCE, combination, strict=True))), (
            combination
        )
        files = sorted((staging.folder / f"{place}" / "replayed").iterdir())
        assert len(files) == 4
        rows = pl.concat(pl.read_parquet(file) for file in files)
        by_run = ask(
            scored,
            "SELECT novelty, score, trace_id FROM scores "
            "ORDER BY cache_group, created_at, trace_id",
        )
        replayed = rows.filter(cache=number).select("novelty", "score", "score_in_force")
        assert replayed.rows() == [(*row[:2], in_force[row[2]]) for row in by_run], combination


CACHES = st.builds(
    CacheSettings,
    st.integers(1, 20),
    st.none() | st.integers(1, 4).map(lambda seconds: timedelta(seconds=seconds)),
)
# The last one is similar to the others by 0.5: novelty is then that of an empty cache.
VECTORS = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (1, 1, 1, 1))
WEIGHTS = (0.2, 0.3, 0.3, 0.2)  # of code


def score_of(novelty: float) -> float:
    """The score of a row of `traces_at`."""
    return 0.5 * WEIGHTS[0] + novelty * WEIGHTS[1] + 0.5 * WEIGHTS[2] + 0.5 * WEIGHTS[3]


# Of a trace: its time in microseconds, its vector, the recorded score.
Row = tuple[int, tuple[int, ...], float | None]
ROWS: st.SearchStrategy[Row] = st.tuples(
    st.integers(0, 6).map(lambda number: number * 500_000),
    st.sampled_from(VECTORS),
    st.sampled_from((None, 0.4, score_of(0.5), score_of(0.5))),
)
LAST: Row = (0, VECTORS[1], 0.4)
GROUPS = st.lists(ROWS, min_size=1, max_size=15).map(lambda rows: sorted(rows, key=itemgetter(0)))


def novelty_in(cache: VectorCache, vector: Float32s, now: datetime) -> float:
    """Novelty of a vector, which the cache then holds."""
    similarity = cache.max_cosine_similarity(vector, now)
    cache.add(vector, now)
    return 0.5 if similarity is None else float(novelty(similarity))


def one_by_one(
    cache: CacheSettings, rows: list[Row], vectors: Float32s
) -> list[tuple[float, float | None, bool]]:
    """Novelty, distance from the recorded score, and whether that implies a restart."""
    plain, restarted = (VectorCache(cache.size, vectors.shape[1], cache.ttl) for _ in range(2))
    replayed: list[tuple[float, float | None, bool]] = []
    for (time, _, recorded), vector in zip(rows, vectors, strict=True):
        now = datetime.fromtimestamp(time / 1e6, UTC)
        own = novelty_in(plain, vector, now)
        restarts = recorded == score_of(0.5) and abs(score_of(own) - recorded) > 1e-6
        if restarts:
            restarted.clear()
        theirs = score_of(novelty_in(restarted, vector, now))
        error = None if recorded is None or restarts else abs(theirs - recorded)
        replayed.append((own, error, restarts))
    return replayed


@settings(
    max_examples=25,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(GROUPS, min_size=1, max_size=4),
    st.lists(CACHES, min_size=1, max_size=4, unique=True),
    st.integers(1, 6),
)
# The row before the last restarts nothing: it was compared with the first; the last was not.
@example(
    [[*((0, VECTORS[index], None) for index in (3, 1, 2)), (0, VECTORS[0], score_of(0.5)), LAST]],
    [CacheSettings(3, None)],
    1,
)
def test_however_spans_are_cut_each_groups_caches_are_those_of_its_whole_history(
    monkeypatch: pytest.MonkeyPatch,
    groups: list[list[Row]],
    caches: list[CacheSettings],
    length: int,
) -> None:
    monkeypatch.setattr(kp_batch.operations.sweep, "RANGE_ROWS", length)
    rows = [row for group in groups for row in group]
    vectors = normalised(np.array([vector for _, vector, _ in rows], dtype=np.float64))
    grouping = Grouping((), {cache: set() for cache in caches})
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
    assert result.schema == SWEPT
    for number, cache in enumerate(caches):
        wanted: list[tuple[float, float | None, bool]] = []
        for members in groups:
            wanted += one_by_one(cache, members, vectors[len(wanted) :][: len(members)])
        replayed = result.filter(cache=number).select(
            "novelty", "recorded_error", "implies_restart"
        )
        assert replayed.rows() == wanted


def staged(groups: list[list[Row]]) -> pl.DataFrame:
    """Rows of some groups as sweep_rows.sql makes them."""
    lengths = np.array(list(map(len, groups)))
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    [profile] = [profile for profile in load_profiles().profiles if profile.name == "code"]
    times, _, recorded = zip(*(row for group in groups for row in group), strict=True)
    columns = {"first": first, "created_at": times, "recorded_score": recorded}
    return pl.DataFrame(columns, schema_overrides={"recorded_score": pl.Float64}).with_columns(
        pl.col("created_at").cast(pl.Datetime("us", "UTC")),
        task_domain=pl.lit("code"),
        profile_id=pl.lit(profile.profile_id),
        **dict.fromkeys(("novelty_in_force", "score_in_force"), pl.lit(0.25)),
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
    with pytest.raises(KpBatchError, match=r"without an encoder, .* with an --embedder first"):
        swept(scored.warehouse)


def test_a_warehouse_without_a_score_has_none_to_sweep(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="is no warehouse; run an archive first"):
        swept(tmp_path)
    lone = write_jsonl(tmp_path / "a.jsonl", [trace(id="lone")])
    rescore_archive(config(tmp_path, lone))
    result = swept(tmp_path / "warehouse", sizes=[1, 10**17], ttls=["1s", "none"])
    assert {(row.mean_novelty, row.rank_correlation) for row in result.outcomes} == {(0.5, None)}
    forget(tmp_path / "warehouse", ["lone"])
    with pytest.raises(WarehouseError, match=r"no trace is scored in .*warehouse; run an archive"):
        swept(tmp_path / "warehouse")


@pytest.mark.telling
def test_a_grouping_of_which_no_trace_has_a_value_is_refused(scored: RescoreConfig) -> None:
    message = "there is no plane; there are agent_id, framework, task_domain, host$"
    with pytest.raises(KpBatchError, match=message):
        swept(scored.warehouse, cache_by=["host", "plane"])


@pytest.mark.telling
def test_windows_that_fit_into_no_memory_are_refused(
    scored: RescoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.pipeline.preflight, "available_bytes", lambda: 512 << 20)
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
def test_the_command_tells_the_same_in_all_forms_and_changes_nothing(scored: RescoreConfig) -> None:
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
    assert result == swept(scored.warehouse, cache_by=["none"], sizes=(7, 40), ttls=("1h", "3h"))
    assert json.loads(done.stdout).keys() == asdict(result).keys()
    shown = invoke(*arguments)
    assert shown.stdout == f"{sweep_text(result)}\n"
    assert max(map(len, shown.stdout.splitlines())) <= 120
    [in_force] = {row for row in result.outcomes if row.in_force and row.task_domain is None}
    [line] = re.findall(r"^all domains.*\n(?:.+\n)*?(.* in force)$", shown.stdout, re.MULTILINE)
    assert line.split()[:5] == ["none", "40", "3h", "0.55", f"{in_force.mean_novelty:.4f}"]
    assert listing(scored.warehouse) == before


def outcome(**changes: Any) -> Outcome:
    """An outcome over all domains."""
    cache: dict[str, Any] = {
        "cache_by": "none",
        "cache_size": 40,
        "ttl": "3h",
        "threshold": 0.5,
        "in_force": True,
    }
    means = {"traces": 100, "mean_novelty": 0.5, "mean_score": 0.5, "mean_change": 0.0}
    recorded = {"recorded": 0, "recorded_error": None, "recorded_share": None}
    reaching = {"worth_sharing": 1, "now_reach": 0, "no_longer_reach": 0}
    rest = {"task_domain": None, "rank_correlation": None, "implied_restarts": 0}
    return Outcome(**{**cache, **means, **recorded, **reaching, **rest, **changes})


@pytest.mark.telling
@pytest.mark.parametrize(
    ("in_force", "other", "fits"),
    [
        ((0.1, 0.04), (0.1, 0.019), True),
        ((0.1, 0.04), (0.9, 0.05), True),
        ((0.1, 0.04), (0.5, 0.021), False),
        ((0.1, 0.04), (0.0, 0.0), False),
        ((1.0, 9e-7), (1.0, 0.0), False),
        ((1.0, 0.0), (1.0, 0.0), False),
        ((None, None), (None, None), False),
        ((0.0, 0.2), (0.0, None), False),  # its restarts explain all of them
        ((0.0, None), (0.9, 0.05), True),
        ((0.0, None), (0.4, 0.05), False),
    ],
)
def test_a_cache_fits_better_where_half_as_many_differ_or_by_half_as_much(
    *, in_force: tuple[float | None, ...], other: tuple[float | None, ...], fits: bool
) -> None:
    fit, now = (
        {"recorded_share": share, "recorded_error": error, "recorded": 0 if error is None else 90}
        for share, error in (other, in_force)
    )
    perfect = {"recorded_share": 1.0, "recorded_error": 0.0, "recorded": 90}
    rows = (
        outcome(cache_by="agent_id", in_force=False, **fit),
        outcome(**now),
        outcome(task_domain="code", cache_size=9, in_force=False, **perfect),
    )
    result = Sweep("an encoder", 100, rows)
    assert result.better_fit.startswith("--cache-by agent_id --cache-size 40 --ttl 3h ") == fits
    assert bool(result.better_fit) == fits
    text = sweep_text(result)
    assert ("\nrecorded scores" in text) == any(row["recorded"] for row in (fit, now))
    assert ("fits better" in text) == fits


def test_a_cell_is_a_value_in_its_form_and_empty_where_there_is_none() -> None:
    row = outcome(mean_change=-1e-9, cache_size=1_000, traces=80, threshold=1.0)
    names = ("mean_change", "cache_size", "rank_correlation", "worth_sharing", "threshold")
    assert [row.cell(name) for name in names] == ["+0.0000", "1,000", "", "1 (1.2%)", "1"]
    assert outcome(threshold=0.1234567).cell("threshold") == "0.1234567"
    assert {*COLUMNS, "task_domain", "traces", "in_force"} == asdict(row).keys()


@pytest.mark.telling
@pytest.mark.parametrize(("domains", "more"), [(10, None), (11, "1 more domain"), (12, "2 more d")])
def test_a_terminal_shows_the_domains_with_the_most_traces(domains: int, more: str | None) -> None:
    one = outcome()
    others = [replace(one, task_domain=f"d{n:02}", traces=n + 1) for n in range(domains)]
    text = sweep_text(Sweep("an encoder", 100, (one, *others)))
    assert re.findall(r"^d\d\d, ", text, re.MULTILINE) == [
        f"{row.task_domain}, " for row in others[-10:]
    ]
    assert (more is None) == ("more domain" not in text)
    assert more is None or f"\n\n{more}" in text


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
    first.run(archive, **IN_FORCE)
    with second.here():
        done = invoke("sweep", "--warehouse", second.url, "--cache-size", 7, "--json")
    assert done.returncode == 0, done.stderr
    assert TypeAdapter(Sweep).validate_json(done.stdout) == swept(scored.warehouse, sizes=[7])
