"""Every question's answer against an independent computation in Polars."""

import math
import re
from collections.abc import Callable, Collection
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.schemas import VIEWS
from kp_batch.scoring.composite import composite, score
from kp_batch.scoring.profiles import WeightProfile, load_profiles
from kp_batch.warehouse.questions import columns, questions
from kp_batch.warehouse.reader import connect
from tests.support import ROOT
from tests.support.docs.pages import DOCS, blocks
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.full_warehouse import answering_warehouse
from tests.support.make.profiles import undated
from tests.support.make.publications import publish_nothing
from tests.support.read.queries import ask, assert_same, day, gaps

QUESTIONS = ROOT / "kp_batch" / "warehouse" / "sql" / "questions"
MACROS, MEANS = QUESTIONS.with_name("macros"), QUESTIONS.with_name("means")
PAGE = DOCS / "reference" / "questions.md"
MACRO = re.compile(r"^CREATE MACRO (\w+)\(", re.MULTILINE)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return answering_warehouse(tmp_path_factory.mktemp("questions"))


@pytest.fixture(scope="module")
def scores(warehouse: Path) -> pl.DataFrame:
    return ask(warehouse, "FROM scores ORDER BY created_at, trace_id")


def distribution(scores: pl.DataFrame) -> pl.DataFrame:
    value = pl.col("score")
    return scores.group_by("task_domain").agg(
        traces=pl.len(),
        mean=value.mean(),
        stddev=value.std(),
        skewness=value.skew(bias=False).fill_nan(None),
        min=value.min(),
        **{f"p{q}": value.quantile(q / 100, "linear") for q in (5, 25, 50, 75, 95)},
        max=value.max(),
    )


def by_repetition(scores: pl.DataFrame) -> pl.DataFrame:
    before = pl.int_range(pl.len()).over("text_hash", order_by=["created_at", "trace_id"])
    times = pl.when(before < 10).then(before.cast(pl.String)).otherwise(pl.lit("10 or more"))
    return by_band(scores, times)


def by_similarity(scores: pl.DataFrame) -> pl.DataFrame:
    at = pl.col("max_similarity")
    band = (
        pl.when(at.is_null())
        .then(pl.lit("empty cache"))
        .when(at >= 0.999999)
        .then(pl.lit("the same"))
        .when(at >= 0.95)
        .then(pl.lit("0.95 to the same"))
        .when(at >= 0.8)
        .then(pl.lit("0.80 to 0.95"))
        .when(at >= 0.5)
        .then(pl.lit("0.50 to 0.80"))
        .otherwise(pl.lit("below 0.50"))
    )
    return by_band(scores, band)


def by_age(scores: pl.DataFrame) -> pl.DataFrame:
    names = {
        0: "below 1 minute",
        60: "1 minute to 1 hour",
        3600: "1 hour to 1 day",
        86_400: "1 day to 1 week",
        604_800: "1 week or more",
    }
    near = scores.drop_nulls("nearest_age_s")
    return by_band(
        near, pl.Series([names[max(e for e in names if age >= e)] for age in near["nearest_age_s"]])
    )


def by_band(scores: pl.DataFrame, band: pl.Expr | pl.Series) -> pl.DataFrame:
    value = pl.col("novelty")
    return (
        scores.with_columns(band=band)
        .group_by("band")
        .agg(
            traces=pl.len(),
            share=pl.len() / len(scores),
            mean_novelty=value.mean(),
            median_novelty=value.median(),
            least_novelty=value.min(),
            greatest_novelty=value.max(),
        )
    )


def repeated(scores: pl.DataFrame) -> pl.DataFrame:
    return (
        scores.group_by("text_hash")
        .agg(
            traces=pl.len(),
            first_at=pl.col("created_at").min(),
            last_at=pl.col("created_at").max(),
            mean_novelty=pl.col("novelty").mean(),
            first_trace_id=pl.col("trace_id").sort_by("created_at", "trace_id").first(),
        )
        .filter(pl.col("traces") > 1)
    )


def dimension_correlations(scores: pl.DataFrame) -> pl.DataFrame:
    pairs = [(a, b) for i, a in enumerate(DIMENSIONS) for b in DIMENSIONS[i + 1 :]]
    return scores.group_by("task_domain").agg(
        pl.corr(a, b).fill_nan(None).alias(f"{a}_{b}") for a, b in pairs
    )


def ties(scores: pl.DataFrame) -> pl.DataFrame:
    return (
        scores.group_by("created_at")
        .agg(traces=pl.len(), trace_ids=pl.col("trace_id").sort())
        .filter(pl.col("traces") > 1)
    )


def recorded_differences(scores: pl.DataFrame) -> pl.DataFrame:
    compared = pl.col("recorded_score") != 0
    ours, theirs = (pl.col(column).filter(compared) for column in ("score", "recorded_score"))
    return (
        scores.drop_nulls("recorded_score")
        .group_by("task_domain", day().alias("day"))
        .agg(
            traces=compared.sum(),
            placeholders=(~compared).sum(),
            mean_difference=(ours - theirs).mean(),
            mean_absolute_difference=(ours - theirs).abs().mean(),
            rank_correlation=pl.corr(ours, theirs, method="spearman").fill_nan(None),
            now_reaching=((ours >= 0.6) & (theirs < 0.6)).sum(),
            no_longer_reaching=((ours < 0.6) & (theirs >= 0.6)).sum(),
        )
    )


def furthest(scores: pl.DataFrame) -> pl.DataFrame:
    weights = {profile.name: profile.novelty for profile in undated().values()}
    difference = pl.col("score") - pl.col("recorded_score")
    weight = pl.col("profile").replace_strict(weights)
    unbound = pl.col("composite") + 0.1 * (
        pl.col("recovery_bonus").cast(pl.Int8) - pl.col("low_diversity_penalty").cast(pl.Int8)
    )
    at_the_top = 1 - 0.1 * pl.col("low_diversity_penalty").cast(pl.Int8)
    is_informative = ~pl.col("single_thought") & (pl.col("recorded_score") < at_the_top)
    novelty = pl.col("novelty") + (pl.col("recorded_score") - unbound) / weight
    implied = pl.when(is_informative).then(novelty)
    recorded = scores.filter(pl.col("recorded_score") != 0)
    return recorded.with_columns(difference=difference, implied_novelty=implied)


ANSWERS: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "score_distribution": distribution,
    "dimension_correlations": dimension_correlations,
    "novelty_by('repetition')": by_repetition,
    "novelty_by('similarity')": by_similarity,
    "novelty_by('age')": by_age,
    "repeats('text_hash')": repeated,
    "days_without_traces": gaps,
    "timestamp_ties": ties,
    "recorded_score_differences": recorded_differences,
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati"])
def test_a_view_answers_as_polars_does_in_any_zone(
    warehouse: Path, scores: pl.DataFrame, name: str, zone: str
) -> None:
    answer = ask(warehouse, f"FROM {name}", zone)
    assert len(answer) > 0
    wanted = ANSWERS[name](scores)
    assert_same(answer.select(wanted.columns), wanted)


@pytest.mark.parametrize("bins", [1, 7, 10, 20])
def test_the_histogram_counts_each_score_once(
    warehouse: Path, scores: pl.DataFrame, bins: int
) -> None:
    answer = ask(warehouse, f"FROM score_histogram({bins})")
    number = (pl.col("score") * bins).floor().clip(0, bins - 1)
    wanted = scores.group_by("task_domain", (number / bins).alias("low")).agg(
        high=(number.first() + 1) / bins, traces=pl.len()
    )
    assert_same(answer, wanted)
    assert answer["traces"].sum() == len(scores)


@pytest.mark.parametrize("steps", [1, 3, 20, 100])
def test_the_threshold_curve_counts_what_reaches_each_threshold_exactly(
    warehouse: Path, scores: pl.DataFrame, steps: int
) -> None:
    wanted = [
        {
            "task_domain": domain,
            "threshold": step / steps,
            "reaching": sum(value >= step / steps for value in values),
            "share": sum(value >= step / steps for value in values) / len(values),
        }
        for domain, values in scores.group_by("task_domain").agg("score").iter_rows()
        for step in range(steps + 1)
    ]
    assert_same(ask(warehouse, f"FROM threshold_curve({steps})"), pl.DataFrame(wanted))


def under(scores: pl.DataFrame, profile: WeightProfile) -> pl.DataFrame:
    return (
        scores.with_columns(profile_id=pl.lit(profile.profile_id))
        .with_columns(composite([profile]))
        .select("trace_id", score())
    )


def assert_compared(
    answer: pl.DataFrame, scores: pl.DataFrame, profiles: Collection[WeightProfile]
) -> None:
    """That every trace is listed under each of these profiles, as the engine scores it there."""
    assert len(answer) == len(profiles) * len(scores)
    for profile in profiles:
        theirs = answer.filter(other_profile=profile.name, other_profile_id=profile.profile_id)
        wanted = under(scores, profile).sort("trace_id")
        their_scores = theirs.sort("trace_id").select("trace_id", score="other_score")
        assert their_scores.rows() == wanted.rows()


def test_what_if_is_what_the_engine_gives_under_these_weights(
    warehouse: Path, scores: pl.DataFrame
) -> None:
    answer = ask(warehouse, "FROM what_if(0.1, 0.2, 0.3, 0.4)").sort("trace_id")
    wanted = under(scores, WeightProfile("default", 0.1, 0.2, 0.3, 0.4)).sort("trace_id")
    assert answer["score"].to_list() == wanted["score"].to_list()
    assert (
        answer["change"].to_list() == (wanted["score"] - scores.sort("trace_id")["score"]).to_list()
    )


@pytest.mark.parametrize("weights", ["1, 1, 1, 1", "0.5, 0.5, 0.25, -0.25"])
def test_what_if_takes_the_weights_of_a_profile_alone(warehouse: Path, weights: str) -> None:
    with pytest.raises(duckdb.Error, match="weights of what_if must sum to 1, and none be below 0"):
        ask(warehouse, f"FROM what_if({weights})")


def test_every_trace_under_every_profile_is_what_the_engine_gives(
    warehouse: Path, scores: pl.DataFrame
) -> None:
    answer = ask(warehouse, "FROM profile_comparison")
    assert_compared(answer, scores, undated().values())
    own = answer.filter(pl.col("profile") == pl.col("other_profile"))
    assert len(own) == len(scores)
    assert own["score"].to_list() == own["other_score"].to_list()


@pytest.mark.slow
def test_traces_are_compared_under_the_weights_in_force_at_their_time(tmp_path: Path) -> None:
    days = [f"2026-01-{day:02d}T08:00:00Z" for day in (5, 6)]
    write_jsonl(tmp_path / "a.jsonl", [trace(id=day, created_at=day) for day in days])
    profiles = tmp_path / "profiles.toml"
    equal = "".join(f"{name} = 0.25\n" for name in DIMENSIONS)
    begins = f'from = "{days[1]}"\n{equal}'
    profiles.write_text(f"[[profiles.code]]\n{begins}[[profiles.poetry]]\n{begins}")
    usual = {"archive": (str(tmp_path / "a.jsonl"),), "warehouse": tmp_path / "wh"}
    rescore_archive(RescoreConfig(**usual, embedder="hashing", profiles=profiles))
    scores = ask(tmp_path / "wh", "FROM scores")
    assert scores["profile_id"].n_unique() == 2
    answer = ask(tmp_path / "wh", "FROM profile_comparison")
    for moment, count in zip(days, (5, 6), strict=True):
        compared = load_profiles(profiles).at(datetime.fromisoformat(moment)).values()
        assert len(compared) == count
        assert_compared(answer.filter(trace_id=moment), scores.filter(trace_id=moment), compared)
    weights = ask(tmp_path / "wh", "FROM dated_weights WHERE name IN ('code', 'poetry')")
    second = datetime.fromisoformat(days[1])
    assert weights.sort("name", "valid_from").select("name", "valid_from", "valid_to").rows() == [
        ("code", None, second),
        ("code", second, None),
        ("poetry", second, None),
    ]
    assert weights["profile_id"].is_in(ask(tmp_path / "wh", "FROM profiles")["profile_id"]).all()


def test_near_repeats_are_those_over_the_given_similarity(
    warehouse: Path, scores: pl.DataFrame
) -> None:
    answer = ask(warehouse, "FROM near_repeats(0.9)")
    wanted = scores.filter(pl.col("max_similarity") >= 0.9).select(answer.columns)
    assert len(answer) > 0
    assert_same(answer, wanted)


@pytest.mark.telling
@pytest.mark.slow
def test_traces_of_one_text_are_near_repeats_at_one(tmp_path: Path) -> None:
    words = [trace(id=f"{n}-{letter}", objective=f"say {n}") for n in range(20) for letter in "ab"]
    own = RescoreConfig(
        archive=(str(write_jsonl(tmp_path / "a.jsonl", words)),),
        warehouse=tmp_path / "wh",
        embedder="hashing",
    )
    rescore_archive(own)
    copies = {f"{n}-b" for n in range(20)}
    cosines = ask(own.warehouse, "SELECT trace_id FROM scores WHERE max_similarity >= 1")
    assert not copies <= {*cosines["trace_id"]}  # rounding
    assert {*ask(own.warehouse, "FROM near_repeats(1.0)")["trace_id"]} >= copies
    assert ask(own.warehouse, "FROM near_repeats(1.1)").is_empty()


def test_the_furthest_from_what_was_recorded_come_first_with_what_they_met(
    warehouse: Path, scores: pl.DataFrame
) -> None:
    answer = ask(warehouse, "FROM largest_score_differences")
    assert len(answer) == scores.filter(pl.col("recorded_score") != 0).height > 0
    assert_same(answer, furthest(scores).select(answer.columns))
    assert answer["difference"].abs().is_sorted(descending=True)
    assert 0 < answer["implied_novelty"].null_count() < len(answer)


@pytest.mark.parametrize("tolerance", [1e-6, 0.2])
def test_a_restart_is_implied_where_an_empty_cache_alone_explains_the_recorded_score(
    warehouse: Path, scores: pl.DataFrame, tolerance: float
) -> None:
    profiles = [*undated().values()]
    weight = pl.col("profile").replace_strict(
        {profile.name: profile.novelty for profile in profiles}
    )
    empty = scores.with_columns(novelty=0.5).with_columns(composite(profiles)).select(score())
    known, ours = pl.col("recorded_score"), pl.col("score")
    at_the_top = 1 - 0.1 * pl.col("low_diversity_penalty").cast(pl.Int8)
    shows = (known != 0) & ~pl.col("single_thought") & (weight > 0) & (known < at_the_top)
    explained = (known - pl.col("score_if_empty")).abs() <= tolerance
    wanted = scores.with_columns(score_if_empty=empty.to_series()).filter(
        shows & explained & ((known - ours).abs() > tolerance)
    )
    answer = ask(warehouse, f"FROM implied_restarts({tolerance})")
    assert answer.rows() == wanted.select(answer.columns).rows()
    assert (answer["trace_id"].to_list() == ["kp:trace:restarted"]) == (tolerance < 0.1)
    assert (answer["cache_size"] > 0).all()
    assert len(answer) > 0


def test_rejects_are_counted_by_file_and_code(warehouse: Path) -> None:
    answer = ask(warehouse, "FROM rejects_by_code")
    rejects = ask(warehouse, "FROM rejects").explode("reasons")
    wanted = rejects.group_by("source_file", code="reasons").agg(rejected=pl.len())
    assert len(answer) > 0
    assert_same(answer.drop("rejected_on"), wanted)
    [(started,)] = ask(warehouse, "SELECT min(started_at) FROM runs").rows()
    assert set(answer["rejected_on"]) == {date.fromisoformat(str(started)[:10])}


def standing(scores: pl.DataFrame) -> pl.DataFrame:
    value = pl.col("score")
    bins = [
        ((value * 10).floor().clip(0, 9) == number).sum().cast(pl.Int64) for number in range(10)
    ]
    numbers = {
        "traces": pl.len().cast(pl.Int64),
        "worth_sharing": pl.col("meets_threshold").sum().cast(pl.Int64),
        "mean": value.mean(),
        **{
            f"p{percent}": value.quantile(percent / 100, "linear")
            for percent in (5, 25, 50, 75, 95)
        },
        "bins": pl.concat_list(bins),
    }
    by_domain = scores.group_by("task_domain").agg(**numbers)
    everyone = scores.select(pl.lit(None, pl.String).alias("task_domain"), **numbers).head(1)
    return pl.concat([by_domain, everyone]).sort("task_domain", nulls_last=True)


def test_each_run_leaves_how_the_scores_stood(warehouse: Path) -> None:
    with connect(warehouse) as connection:
        runs = connection.execute("SELECT run_id FROM runs ORDER BY started_at").fetchall()
    for (run_id,) in runs:
        with connect(warehouse, run_id) as connection:
            scores = pl.DataFrame(connection.sql("FROM scores").to_arrow_table())
        query = f"SELECT * EXCLUDE (run_id) FROM distributions WHERE run_id = '{run_id}'"
        answer = ask(warehouse, f"{query} ORDER BY task_domain NULLS LAST")
        wanted = standing(scores)
        assert answer["bins"].to_list() == wanted["bins"].to_list()
        assert_same(answer.drop("bins"), wanted.drop("bins"))


def test_drift_is_computed_from_what_the_runs_left(warehouse: Path) -> None:
    runs = ask(warehouse, "SELECT run_id FROM runs ORDER BY started_at")["run_id"]
    first, second = (
        ask(warehouse, f"FROM distributions WHERE run_id = '{run}'").sort("task_domain")
        for run in runs
    )
    answer = ask(warehouse, f"FROM drift('{runs[0]}', '{runs[1]}')").sort("task_domain")
    assert answer["task_domain"].to_list() == first["task_domain"].to_list()
    for name in ("mean", "p5", "p25", "p50", "p75", "p95"):
        shift = second[name] - first[name]
        assert answer[f"{name}_shift"].to_list() == shift.to_list()
    for row, a, b in zip(answer.iter_rows(named=True), first["bins"], second["bins"], strict=True):
        if sum(a) < 200:
            assert row["stability_index"] is None
            continue
        shares = [[max(n / sum(bins), 0.0001) for n in bins] for bins in (a, b)]
        wanted = sum((q - p) * math.log(q / p) for p, q in zip(*shares, strict=True))
        assert row["stability_index"] == pytest.approx(wanted, abs=1e-12)
    assert answer["stability_index"].sum() > 0
    same = ask(warehouse, f"SELECT DISTINCT stability_index FROM drift('{runs[0]}', '{runs[0]}')")
    assert sorted(same.to_series(), key=str) == [0.0, None]


@pytest.mark.telling
@pytest.mark.slow
def test_drift_refuses_runs_that_are_not_there_or_do_not_compare(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(id="t")])
    usual = {"archive": (str(tmp_path / "a.jsonl"),), "warehouse": tmp_path / "wh"}
    rescore_archive(RescoreConfig(**usual, embedder="hashing"))
    with pytest.raises(duckdb.Error, match=r"is null, as previous\(\) is after the first run"):
        ask(tmp_path / "wh", "FROM drift(previous(), latest())")
    rescore_archive(RescoreConfig(**usual, embedder="hashing", threshold=0.5))
    assert len(ask(tmp_path / "wh", "FROM drift(previous(), latest())")) == 2
    rescore_archive(RescoreConfig(**usual, embedder="none"))
    for query, message in (
        ("FROM drift(previous(), latest())", "do not compare: their encoders differ"),
        ("FROM drift('2026', latest())", "the full ids of two runs that are done"),
        ("FROM score_histogram(0)", "1 bin at least"),
        ("FROM threshold_curve(0)", "1 step at least"),
        ("FROM threshold_curve(0.05)", "1 step at least"),
        ("FROM threshold_curve(2.5)", "a whole number of steps"),
        ("FROM score_histogram(2.5)", "a whole number of bins"),
    ):
        with pytest.raises(duckdb.Error, match=message):
            ask(tmp_path / "wh", query)


def test_every_question_says_what_it_answers_and_is_among_them(warehouse: Path) -> None:
    with connect(warehouse) as connection:
        views = "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
        macros = (
            "SELECT function_name, comment FROM duckdb_functions() "
            "WHERE NOT internal AND schema_name = 'main' AND NOT contains(function_name, ' of ')"
        )
        comments = dict(connection.execute(f"{views} UNION ALL {macros}").fetchall())
    names = {path.stem for path in QUESTIONS.glob("*.sql")}
    files = [*MACROS.glob("*.sql"), *MEANS.glob("*.sql")]
    formulas = {name for path in files for name in MACRO.findall(path.read_text())}
    assert comments.keys() == names | formulas | set(VIEWS)
    assert all(comments[name] for name in formulas)
    assert all(comments[name] and "?" in comments[name] for name in names)


@pytest.mark.telling
@pytest.mark.slow
def test_every_question_has_an_example_with_an_answer(warehouse: Path) -> None:
    listed = questions()
    assert {question.name for question in listed} == {path.stem for path in QUESTIONS.glob("*.sql")}
    for question in listed:
        assert question.name in question.example
        assert len(ask(warehouse, question.example)) > 0, question


@pytest.mark.slow
def test_the_examples_of_the_page_have_answers(warehouse: Path) -> None:
    examples = "".join(block.text for block in blocks(PAGE) if block.language == "sql")
    queries = [query.strip() for query in examples.split(";") if query.strip()]
    assert len(queries) >= len(list(QUESTIONS.glob("*.sql")))
    for query in queries:
        assert len(ask(warehouse, query)) > 0, query


def test_what_is_listed_of_a_question_is_what_the_catalog_has(warehouse: Path) -> None:
    known = {question.name: question for question in questions()}
    with connect(warehouse) as connection:
        views = "SELECT view_name, comment FROM duckdb_views()"
        macros = "SELECT function_name, comment FROM duckdb_functions() WHERE schema_name = 'main'"
        comments = dict(connection.execute(f"{views} UNION ALL {macros}").fetchall())
        assert {name: comments[name] for name in known} == {
            name: question.comment for name, question in known.items()
        }
        types = columns(known["score_histogram"], connection)
    assert types == {
        "task_domain": "VARCHAR",
        "low": "DOUBLE",
        "high": "DOUBLE",
        "traces": "BIGINT",
    }
    assert known["score_histogram"].call == "score_histogram(bins)"


CALLED = (
    "SELECT {0}latest(), {0}previous()",
    "FROM {0}drift({0}previous(), {0}latest())",
    "FROM {0}what_if(0.1, 0.2, 0.3, 0.4) ORDER BY ALL",
    "FROM {0}near_repeats(0.9)",
    "FROM {0}score_histogram(20)",
    "FROM {0}threshold_curve(4)",
    "FROM {0}profile_comparison ORDER BY ALL",
    "SELECT {0}score_bins(score), {0}stability_index([1, 2], [3, 4]) FROM {0}scores",
    "SELECT {0}apply_overrides(composite, true, true, true) FROM {0}scores",
)


def called(connection: duckdb.DuckDBPyConnection, catalog: str = "") -> list[list[Any]]:
    return [connection.execute(call.format(catalog)).fetchall() for call in CALLED]


@pytest.fixture(scope="module")
def answers(warehouse: Path) -> list[list[Any]]:
    """What is called of the catalog alone, opened by any DuckDB."""
    with duckdb.connect(str(warehouse / "kp.duckdb"), read_only=True) as connection:
        return called(connection)


def test_questions_ask_for_the_views_of_the_catalog_alone() -> None:
    """Another name would find a user's table of that name."""
    unqualified = re.compile(rf"^[^'\n]*\b(?:FROM|JOIN) (?:{'|'.join(VIEWS)})\b", re.MULTILINE)
    for path in QUESTIONS.glob("*.sql"):
        assert not unqualified.findall(path.read_text("utf-8")), path


# Each way to ask the views: by a view, by a view of a macro, by a macro of macros.
ASKED = {
    "largest_score_differences": "FROM $.largest_score_differences",
    "dated_weights": "FROM $.dated_weights",
    "rejects_by_code": "FROM $.rejects_by_code",
    "mean_changes": "FROM mean_changes('week')",
    "latest": "SELECT latest()",
}


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("alias", ["kp", "nightly"])
def test_a_table_of_the_user_hides_no_view_from_the_questions(warehouse: Path, alias: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")  # sums have an order
        connection.execute(f"ATTACH '{warehouse / 'kp.duckdb'}' AS {alias} (READ_ONLY)")
        connection.execute(f"USE {alias}")
        asked = {name: query.replace("$", f"{alias}.main") for name, query in ASKED.items()}
        answers = {name: connection.sql(query).fetchall() for name, query in asked.items()}
        for name in VIEWS:
            connection.execute(f"CREATE TEMP TABLE {name} AS FROM {alias}.main.{name} LIMIT 1")
        assert connection.sql("SELECT count(*) FROM scores").fetchall() == [(1,)]
        assert len(set(map(str, answers.values()))) == len(ASKED)
        for name, query in asked.items():
            rows = connection.sql(query).fetchall()
            assert str(sorted(map(str, rows))) == str(sorted(map(str, answers[name]))), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alias", "use", "catalog"),
    [("kp", "kp", "kp."), ("kp", "kp", ""), ("other", "other", ""), ("other", "other", "other.")],
)
def test_the_catalog_answers_the_same_where_it_is_attached(
    warehouse: Path, answers: list[list[Any]], alias: str, use: str, catalog: str
) -> None:
    assert all(answers)
    listed = questions()
    names = re.compile(rf"\b({'|'.join(question.name for question in listed)})\b")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{warehouse / 'kp.duckdb'}' AS {alias} (READ_ONLY)")
        connection.execute(f"USE {use}")
        assert called(connection, catalog) == answers
        for question in listed:
            example = names.sub(rf"{catalog}\1", question.example)
            assert connection.execute(example).fetchone(), example


def test_a_catalog_whose_file_is_called_otherwise_answers_where_it_is_used(
    warehouse: Path, answers: list[list[Any]], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes((warehouse / "kp.duckdb").read_bytes())
    with duckdb.connect(str(copy), read_only=True) as connection:
        assert called(connection) == answers


def test_no_catalog_answers_from_another_one_that_is_called_kp(
    warehouse: Path, tmp_path: Path
) -> None:
    publish_nothing(tmp_path)
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 'kp.duckdb'}' AS kp (READ_ONLY)")
        connection.execute(f"ATTACH '{warehouse / 'kp.duckdb'}' AS other (READ_ONLY)")
        for query in CALLED[:6]:
            with pytest.raises(duckdb.CatalogException, match=r" of \w+ does not exist"):
                connection.execute(query.format("other."))


def test_no_catalog_answers_from_that_of_another_copy_of_its_warehouse(tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    publish_nothing(tmp_path)
    copy.write_bytes((tmp_path / "kp.duckdb").read_bytes())
    publish_nothing(tmp_path, threshold=0.8)
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 'kp.duckdb'}' AS kp (READ_ONLY)")
        connection.execute(f"ATTACH '{copy}' AS other (READ_ONLY)")
        connection.execute("USE other")
        with pytest.raises(duckdb.CatalogException, match=r" of \w+ does not exist"):
            connection.execute("FROM kp.score_histogram(20)")


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (
            "differences_by('agent_id', 'patchwork-a', 'patchwork-a')",
            "two different values, neither of them null",
        ),
        ("differences_by('agent_id', 'ops', NULL)", "two different values, neither of them null"),
        ("differences_by('agent_id', 'patchwork-a', 'ops')", "no trace has ops, which was to be"),
        ("differences_by('framework', 'no one', 'langgraph')", "no trace has no one, which was"),
        ("changes_by('agent_id', 'fortnight')", 'Column "fortnight" was selected but was not'),
        ("novelty_by('luck')", "novelty goes by age, similarity or repetition"),
        ("mean_changes('fortnight')", 'Column "fortnight" was selected but was not'),
        ("changes_by('task_domain', NULL)", "COLUMNS expects"),
    ],
)
def test_questions_refuse_what_they_cannot_compare(
    warehouse: Path, question: str, reason: str
) -> None:
    with pytest.raises(duckdb.Error, match=reason):
        ask(warehouse, f"FROM {question}")
