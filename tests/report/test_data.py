"""All data of the report against an independent computation in Polars."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, get_type_hints

import duckdb
import polars as pl
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.duck import read_parquet
from kp_batch.errors import ArchiveError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report import data as module
from kp_batch.report.data import FRAMES, ReportData, gather
from kp_batch.report.panels import PANELS
from kp_batch.schemas import TIMESTAMP, VIEWS
from kp_batch.scoring.profiles import load_profiles
from kp_batch.warehouse.catalog import build
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.snapshot import PublishedSnapshot
from tests.support.archives import step, trace, write_jsonl
from tests.support.publications import publish_tables
from tests.support.queries import ask, assert_same, day, gaps, override_effects
from tests.support.vega_lite import fault

# How many traces each domain has; the last three have no label of their own, the ninth has one only
# since its name comes first.
DOMAINS = {
    "code": 40,
    "finance": 36,
    f"{'x' * 45}1": 32,
    f"{'x' * 45}2": 31,
    "<script>alert(1)</script>": 30,
    "a|b`c``d\\": 28,
    "two\nlines": 26,
    "\x1b[31mred\u202e": 24,
    "3 others": 12,
    "law": 12,
    "chess": 10,
    "poetry": 7,
}
LABELS = [
    "code",
    "finance",
    f"{'x' * 39}…",
    f"{'x' * 39}…*",
    "<script>alert(1)</script>",
    "a|b`c``d\\",
    r"two\nlines",
    r"\x1b[31mred\u202e",
    "3 others",
    "3 others*",
]
LABEL_OF = dict(zip(DOMAINS, [*LABELS, LABELS[-1], LABELS[-1]], strict=True))
NEW = "two\nlines"  # comes with the second run, a single thought each: all its scores are the same
AGES = {
    "<1 s": 1,
    "<1 min": 60,
    "<10 min": 600,
    "<1 h": 3600,
    "<6 h": 21_600,
    "<1 d": 86_400,
    "<7 d": 604_800,
    "<30 d": 2_592_000,
    "≥30 d": math.inf,
}
AMONG = "2026-01-20T12:00:00.000001+00:00"
NO_LABEL = ("(never scored)", "(unknown)")  # of a refused row
EMPTY_TOTALS = {
    "threshold": 0.75,
    "domains": 0,
    "first_day": None,
    "last_day": None,
    "same": 0,
    "alike": 0,
    "most_repeated": 0,
    "redundancy": None,
}


@dataclass(frozen=True)
class Reported:
    """A warehouse, what the report says of it, and what that is computed from."""

    warehouse: Path
    data: ReportData
    scores: pl.DataFrame  # each domain by its label
    rejects: pl.DataFrame


def settings(folder: Path, **changes: Any) -> RescoreConfig:
    usual = {"embedder": "hashing", "threshold": 0.6, "max_reject_share": 1}
    where = {"archive": (str(folder / "archive"),), "warehouse": folder / "warehouse"}
    return RescoreConfig(**where, **usual | changes)


def gathered(warehouse: Path) -> ReportData:
    with connect(warehouse) as connection:
        return gather(connection)


def random_trace(number: int, domain: str, random: Random) -> dict[str, Any]:
    """A trace out of few words, now and then soon after another one."""
    seconds = random.choice(
        [0, 0, *(random.uniform(0, 5.0 * 10**exponent) for exponent in range(7))]
    )
    begin = datetime(2026, random.choice([1, 1, 2]), 3, 22, tzinfo=UTC)
    words = random.choice(["sum", "sort", "plan", "fix"]) + random.choice([" it", " the rows", ""])
    thought, failed = step("thought", words), step("error_recovery", "again")
    call, other = (step("tool_call", words, name) for name in ("python", "shell"))
    several = [
        [thought],
        [step("thought", words, "python")],
        [thought, call],
        [thought, call, other],
        [call, failed, failed, failed],
        [other, call, thought, failed, failed, failed],
    ]
    return trace(
        id=f"kp:trace:{number:03d}",
        created_at=(begin + timedelta(seconds=round(seconds))).isoformat(),
        task_domain=domain,
        objective=words,
        steps=several[0] if domain == NEW else random.choice(several),
        confidence=random.choice([0.3, 0.6, 0.9, 1.0]),
        success=random.random() < 0.8,
        quality_score=(None, 0.0, 0.25, 0.7)[number % 4] if domain != "finance" else 0,
    )


def refused() -> list[Any]:
    """Rows that cannot be scored, each in its own way."""
    return [
        trace(id="", task_domain="finance"),
        trace(id="", task_domain="finance", confidence=7.0),
        trace(id="", task_domain="<script>alert(1)</script>"),
        trace(id="kp:trace:refused-1", task_domain="poetry", steps=[]),
        trace(id="kp:trace:refused-2", task_domain="law", confidence=math.nan),
        trace(id="kp:trace:refused-3", task_domain="nowhere", steps=[]),
        trace(id="kp:trace:refused-4", task_domain=None),
        {"id": "kp:trace:refused-5", "metadata": "code"},
        trace(id="kp:trace:000", task_domain="code"),  # the same id comes later, with other content
        b'{"metadata": {"task_domain": "code"}, no more',
        b'["code"]',
    ]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    folder = tmp_path_factory.mktemp("report")
    random = Random(8)
    domains = [domain for domain, traces in DOMAINS.items() for _ in range(traces)]
    traces = [random_trace(number, domain, random) for number, domain in enumerate(domains)]
    late = [record for record in traces if record["metadata"]["task_domain"] == NEW]
    write_jsonl(folder / "archive" / "a.jsonl", refused())
    write_jsonl(folder / "archive" / "b.jsonl", [record for record in traces if record not in late])
    rescore_archive(settings(folder, ttl="1d", profiles=dated()))
    write_jsonl(folder / "archive" / "c.jsonl", late)
    (folder / "archive" / "d.parquet").write_bytes(b"PAR1 and no more")
    rescore_archive(settings(folder, profiles=dated()))
    where = folder / "warehouse"
    scores = ask(where, "FROM scores").with_columns(domain=pl.col("task_domain"))
    labelled = scores.with_columns(task_domain=pl.col("domain").replace_strict(LABEL_OF))
    return Reported(where, gathered(where), labelled, ask(where, "FROM rejects"))


def date_outliers(reported: Reported) -> pl.DataFrame:
    days = reported.scores.select(day()).to_series()
    usual = {"kind": "usual", "traces": len(days), "first_day": days.min(), "last_day": days.max()}
    return pl.DataFrame([usual])


def domains(reported: Reported) -> pl.DataFrame:
    value = pl.col("score")
    numbers = {
        "traces": pl.len(),
        "worth_sharing": (value >= 0.6).sum(),
        "mean": value.mean(),
        **{f"p{q}": value.quantile(q / 100, "linear") for q in (5, 25, 50, 75, 95)},
    }
    overall = reported.scores.group_by(pl.lit(None, pl.String).alias("domain")).agg(**numbers)
    return pl.concat([overall, reported.scores.group_by(domain="task_domain").agg(**numbers)])


def histogram(reported: Reported) -> pl.DataFrame:
    number = (pl.col("score") * 20).floor().clip(0, 19)
    return reported.scores.group_by(domain="task_domain", low=number / 20).agg(
        high=(number.first() + 1) / 20, traces=pl.len()
    )


def over_time(scores: pl.DataFrame, truncated: pl.Expr, length: str) -> pl.DataFrame:
    """Sums for each step of time, also where there is no trace."""
    last_day = scores.select(day().max()).item()
    sums = scores.group_by(start=truncated, domain="task_domain").agg(
        traces=pl.len(), score=pl.col("score").sum(), novelty=pl.col("novelty").sum()
    )
    first, last = sums["start"].min(), sums["start"].max()
    steps = pl.DataFrame({"start": pl.date_range(first, last, length, eager=True)})
    every = steps.join(sums.select("domain").unique(), how="cross")
    return every.join(sums, on=["start", "domain"], how="left").select(
        pl.col("start").dt.strftime("%Y-%m-%d"),
        pl.col("start").dt.offset_by(length).dt.strftime("%Y-%m-%d").alias("end"),
        "domain",
        pl.col("traces").fill_null(0),
        pl.col("score", "novelty").round(6),
        (pl.col("start").dt.offset_by(length) <= last_day + timedelta(days=1)).alias("is_over"),
    )


def dimensions(reported: Reported) -> pl.DataFrame:
    long = reported.scores.unpivot(DIMENSIONS, index="task_domain", variable_name="dimension")
    return long.group_by(
        domain="task_domain", dimension=pl.col("dimension").str.replace_all("_", " ")
    ).agg(mean=pl.col("value").mean(), stddev=pl.col("value").std())


def overrides(reported: Reported) -> pl.DataFrame:
    spaced = pl.col("override").str.replace_all("_", " ")
    return override_effects(reported.scores).rename({"task_domain": "domain"}).with_columns(spaced)


def novelty_and_age(reported: Reported) -> pl.DataFrame:
    with_nearest = reported.scores.drop_nulls("nearest_age_s")
    ages = [
        next(name for name, end in AGES.items() if age < end)
        for age in with_nearest["nearest_age_s"]
    ]
    low = (pl.col("novelty") * 10).floor().clip(0, 9) / 10
    return (
        with_nearest.with_columns(age=pl.Series(ages), low=low)
        .group_by(domain="task_domain", age="age", low="low")
        .agg(
            high=pl.col("low").first() + 0.1,
            traces=pl.len(),
            novelty=pl.col("novelty").sum().round(6),
        )
    )


def thresholds(reported: Reported) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "domain": domain,
                "threshold": step / 40,
                "reaching": sum(value >= step / 40 for value in values),
                "share": sum(value >= step / 40 for value in values) / len(values),
            }
            for domain, values in reported.scores.group_by("task_domain").agg("score").iter_rows()
            for step in range(41)
        ]
    )


def dated() -> dict[str, Any]:
    """Weights that change among the traces of code and of default, and before and after others."""
    built_in = load_profiles().as_json()
    begins = {"code": AMONG, "default": AMONG, "finance": "2020-01-01", "law": "2031-01-01"}
    other = built_in["medical"]
    return built_in | {
        name: [built_in.get(name, other), {"from": begin, **other}]
        for name, begin in begins.items()
    }


def weights(_: Reported) -> pl.DataFrame:
    among = datetime.fromisoformat(AMONG)
    rows = [("code", among), ("default", among)]
    return pl.DataFrame(rows, schema={"name": pl.String, "valid_from": TIMESTAMP}, orient="row")


def drift(reported: Reported) -> pl.DataFrame:
    """From the scores as each of the runs left them."""
    runs = ask(reported.warehouse, "SELECT run_id FROM runs ORDER BY started_at")["run_id"]
    scores_by_run: list[dict[str | None, pl.Series]] = []
    for run in runs:
        with connect(reported.warehouse, run) as connection:
            query = "SELECT task_domain, score FROM scores"
            scores = pl.DataFrame(connection.sql(query).to_arrow_table())
        parts = scores.partition_by("task_domain", as_dict=True)
        scores_by_run.append(
            {None: scores["score"], **{name: part["score"] for (name,), part in parts.items()}}
        )
    before, after = scores_by_run
    apart = {None: None, **{name: label for name, label in LABEL_OF.items() if label != LABELS[-1]}}
    rows = []
    for name, values in before.items():
        if name in apart:
            shifts = {
                f"p{q}_shift": after[name].quantile(q / 100, "linear")
                - values.quantile(q / 100, "linear")
                for q in (5, 50, 95)
            }
            rows.append(
                {
                    "domain": apart[name],
                    "traces_a": len(values),
                    "traces_b": len(after[name]),
                    "mean_shift": after[name].mean() - values.mean(),
                    **shifts,
                    "stability_index": stability_index(values, after[name]),
                }
            )
    return pl.DataFrame(rows)


def recorded(reported: Reported) -> pl.DataFrame:
    compared = pl.col("recorded_score") != 0
    difference = (pl.col("score") - pl.col("recorded_score")).filter(compared)
    was_met = pl.col("recorded_score") >= 0.6
    numbers = {
        "traces": compared.sum(),
        "placeholders": (~compared).sum(),
        "mean_difference": difference.mean(),
        "mean_absolute_difference": difference.abs().mean(),
        "now_reaching": (compared & (pl.col("score") >= 0.6) & ~was_met).sum(),
        "no_longer_reaching": ((pl.col("score") < 0.6) & was_met).sum(),
    }
    carrying = reported.scores.drop_nulls("recorded_score")
    overall = carrying.group_by(pl.lit(None, pl.String).alias("domain")).agg(**numbers)
    by_domain = carrying.group_by(domain="task_domain").agg(**numbers)
    return pl.concat([overall, by_domain.filter(pl.col("traces") > 0)])


def domain_changes(_: Reported) -> pl.DataFrame:
    return pl.DataFrame({"task_domain": [NEW], "is_new": [True]})


def stability_index(before: pl.Series, after: pl.Series) -> float | None:
    if min(len(before), len(after)) < 200:
        return None
    shares = [
        [
            max(sum(min(int(value * 10), 9) == number for value in values) / len(values), 0.0001)
            for number in range(10)
        ]
        for values in (before, after)
    ]
    return sum((q - p) * math.log(q / p) for p, q in zip(*shares, strict=True))


def rejects(reported: Reported) -> pl.DataFrame:
    rows, scores = [], reported.scores.select("trace_id", "task_domain").rows()
    for codes, raw, trace_id in reported.rejects.select("reasons", "raw", "trace_id").iter_rows():
        row = json.loads(raw) if raw else None
        metadata = row.get("metadata") if isinstance(row, dict) else None
        domain = metadata.get("task_domain") if isinstance(metadata, dict) else None
        domain = domain if raw else dict(scores).get(trace_id)
        rows += [
            {"code": code, "domain": LABEL_OF.get(domain, NO_LABEL[domain is None])}
            for code in codes
        ]
    return pl.DataFrame(rows).group_by("code", "domain").agg(rejected=pl.len())


def longest_gaps(reported: Reported) -> pl.DataFrame:
    as_text = pl.col("first_day", "last_day").dt.strftime("%Y-%m-%d")
    return gaps(reported.scores).with_columns(as_text)


def traces(reported: Reported) -> pl.DataFrame:
    parts = []
    days = dict(reported.scores.select("trace_id", day()).iter_rows())
    for which, descending in (("highest", True), ("lowest", False)):
        ordered = reported.scores.sort(
            "score", "trace_id", descending=[descending, False], maintain_order=True
        )
        best = ordered["trace_id"].head(10).to_list()
        parts.append(
            ordered.group_by("task_domain")
            .head(10)
            .select(
                which=pl.lit(which),
                domain="task_domain",
                trace_id="trace_id",
                created_at=pl.col("created_at")
                .dt.convert_time_zone("UTC")
                .dt.strftime("%Y-%m-%d %H:%M"),
                **{name: pl.col(name) for name in DIMENSIONS},
                score="score",
                max_similarity="max_similarity",
                nearest_trace_id="nearest_trace_id",
                nearest_age_s="nearest_age_s",
                day=day(),
                nearest_day=pl.col("nearest_trace_id").replace_strict(days, default=None),
                overall=pl.col("trace_id").is_in(best),
            )
        )
    return pl.concat(parts)


WANTED: dict[str, Callable[[Reported], pl.DataFrame]] = {
    "date_outliers": date_outliers,
    "domains": domains,
    "histogram": histogram,
    "over_time": lambda reported: over_time(reported.scores, day(), "1d"),
    "dimensions": dimensions,
    "overrides": overrides,
    "novelty_and_age": novelty_and_age,
    "thresholds": thresholds,
    "weights": weights,
    "drift": drift,
    "recorded": recorded,
    "domain_changes": domain_changes,
    "rejects": rejects,
    "gaps": longest_gaps,
    "traces": traces,
}


def test_every_frame_is_a_field_with_an_sql_file_of_its_name() -> None:
    queries = files("kp_batch.report").joinpath("sql").iterdir()
    assert {query.name for query in queries} == {f"{name}.sql" for name in (*FRAMES, "totals")}
    hints = get_type_hints(ReportData)
    assert [name for name, kind in hints.items() if kind is pl.DataFrame] == list(FRAMES)


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_what_polars_makes_of_the_scores(reported: Reported, name: str) -> None:
    frame = getattr(reported.data, name)
    assert len(frame) > 0
    assert_same(frame, WANTED[name](reported))


def test_the_archive_of_these_tests_has_all_that_the_data_tell_apart(reported: Reported) -> None:
    data = reported.data
    assert set(data.overrides["override"]) == {
        "single thought",
        "recovery bonus",
        "low diversity penalty",
    }
    assert data.novelty_and_age["age"].unique(maintain_order=True).to_list() == [*AGES]
    assert set(data.rejects["domain"]) == {*NO_LABEL, "code", "finance", LABELS[4], "3 others*"}
    assert {"malformed_json", "unreadable_file", "superseded"} <= set(data.rejects["code"])
    assert len(data.gaps) > 1
    assert reported.scores["max_similarity"].null_count() == 1
    assert reported.scores["created_at"].n_unique() < len(reported.scores)
    known = data.drift["stability_index"].drop_nulls()
    assert known.min() >= 0
    assert known.max() > 0.05
    assert data.totals["most_repeated"] > 10


def test_no_tooltip_shows_a_number_that_is_not_known_as_0(reported: Reported) -> None:
    assert reported.data.drift["stability_index"].has_nulls()
    for panel in PANELS:
        rows = panel.rows(reported.data)
        unknown = {name for name in rows.columns if rows[name].has_nulls()} | {"stddev"}
        if panel.name == "over_time":  # a step of time may be without traces
            unknown |= {"mean score", "mean novelty"}
        numbers = {
            channel["field"]
            for layer in layers(panel.spec(reported.data))
            for channel in tooltips(layer)
            if channel["type"] == "quantitative"
        }
        assert numbers & unknown == set(), panel.name


def test_charts_are_what_the_schema_of_vega_lite_allows(reported: Reported) -> None:
    for panel in PANELS:
        assert fault(panel.spec(reported.data)) == "", panel.name


@pytest.mark.parametrize("grain", ["week", "month", "quarter", "year", "century"])
def test_an_axis_of_time_is_what_the_schema_allows_whatever_its_unit(
    reported: Reported, grain: str
) -> None:
    [volume] = [panel for panel in PANELS if panel.name == "volume"]
    assert fault(volume.spec(replace(reported.data, grain=grain))) == ""


def layers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """A chart, and all that are laid over each other in it."""
    return [spec, *(each for layer in spec.get("layer", []) for each in layers(layer))]


def tooltips(spec: dict[str, Any]) -> list[dict[str, Any]]:
    channels = spec.get("encoding", {}).get("tooltip", [])
    return channels if isinstance(channels, list) else [channels]


def test_the_totals_are_what_polars_makes_of_the_scores(reported: Reported) -> None:
    at = reported.scores["max_similarity"]
    days = reported.scores.select(day()).to_series()
    assert reported.data.totals == {
        "threshold": 0.6,
        "domains": 12,
        "first_day": days.min(),
        "last_day": days.max(),
        "same": pytest.approx((at >= 0.999999).sum() / len(at)),
        "alike": pytest.approx((at >= 0.95).sum() / len(at)),
        "most_repeated": reported.scores["text_hash"].value_counts()["count"].max(),
        "redundancy": None,
    }


def test_rows_are_in_the_order_in_which_they_are_reported(reported: Reported) -> None:
    data = reported.data
    labels = [label for label in data.domains["domain"] if label is not None]
    assert data.domains["domain"][0] is None
    assert labels == LABELS
    assert data.drift["domain"].to_list() == [
        None,
        *(label for label in LABELS[:9] if label != LABEL_OF[NEW]),
    ]
    assert data.gaps["days"].is_sorted(descending=True)
    for name in ("histogram", "over_time", "dimensions", "overrides", "thresholds"):
        frame = getattr(data, name)
        assert frame.equals(frame.sort(frame.columns)), name
    for (which,), rows in data.traces.partition_by("which", as_dict=True).items():
        descending = [which == "highest", False]
        assert rows.equals(rows.sort("score", "trace_id", descending=descending)), which
        assert rows["overall"].to_list() == [True] * 10 + [False] * (len(rows) - 10)


def test_the_bins_of_a_domain_and_of_all_count_each_score_once(reported: Reported) -> None:
    for label in (None, *LABELS):
        rows = reported.scores if label is None else reported.scores.filter(task_domain=label)
        wanted = [
            sum(min(int(value * 20), 19) == number for value in rows["score"])
            for number in range(20)
        ]
        assert reported.data.bins(label) == wanted


def test_labels_are_printable_short_and_apart_and_the_smallest_domains_share_one(
    reported: Reported,
) -> None:
    assert reported.data.labels == LABELS
    assert all(label.isprintable() and len(label) <= 41 for label in LABELS)
    everywhere = ("domains", "histogram", "over_time", "dimensions", "thresholds", "traces")
    for name in everywhere:
        labels = getattr(reported.data, name)["domain"].drop_nulls()
        assert set(labels) == set(LABELS), name


def test_a_connection_is_answered_the_same_again(reported: Reported) -> None:
    with connect(reported.warehouse) as connection:
        first, second = gather(connection), gather(connection)
    assert first.labels == second.labels
    for name in FRAMES:
        assert_same(getattr(first, name), getattr(second, name))


def test_the_last_run_is_the_run(reported: Reported) -> None:
    [last] = ask(reported.warehouse, "SELECT arg_max(run_id, started_at) AS last FROM runs")["last"]
    assert reported.data.run is not None
    assert reported.data.run.run_id == last
    assert reported.data.run.status == "done"
    assert reported.data.run.counts.accepted == sum(DOMAINS.values())
    assert reported.data.failed is None


def publishing(folder: Path, scores: pl.DataFrame) -> Path:
    """A warehouse that publishes these scores and nothing else."""
    scores.select(pl.exclude("meets_threshold", "domain")).write_parquet(folder / "scores.parquet")
    rows = {name: PublishedSnapshot(folder, {}).relation(name) for name in VIEWS}
    rows["scores"] = read_parquet(folder / "scores.parquet")
    manifest = Manifest({"threshold": 0.6}, {}).as_publication("0" * 32)
    build(Layout(folder).catalog, str(folder.resolve()), manifest, rows)
    Layout(folder).manifest.write_text(manifest.as_json())
    return folder


def test_all_but_the_traces_is_computed_from_what_was_read_once(
    reported: Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, names = module._frame, list[str]()  # noqa: SLF001

    def without_scores(connection: duckdb.DuckDBPyConnection, name: str) -> pl.DataFrame:
        (tmp_path / "scores.parquet").unlink(missing_ok=True)
        names.append(name)
        return frame(connection, name)

    monkeypatch.setattr(module, "_frame", without_scores)
    with (
        connect(publishing(tmp_path, reported.scores)) as connection,
        pytest.raises(duckdb.IOException),
    ):
        gather(connection)
    assert sorted(names) == sorted((*FRAMES, "totals"))  # each once
    assert names[-1] == "traces"


@pytest.mark.parametrize(("number", "others"), [(10, ["d09"]), (11, ["2 others"])])
def test_ten_domains_all_have_a_label_of_their_own(
    reported: Reported, tmp_path: Path, number: int, others: list[str]
) -> None:
    names = [f"d{index:02d}" for index in range(number)]
    scores = reported.scores.head(number).with_columns(task_domain=pl.Series(names))
    labels = gathered(publishing(tmp_path, scores)).labels
    assert labels == [*names[:9], *others]


def test_no_domain_is_called_what_stands_for_something_else(
    reported: Reported, tmp_path: Path
) -> None:
    names = ["(unknown)", "(never scored)", "all domains", "constructor", "__proto__"]
    scores = reported.scores.head(5).with_columns(task_domain=pl.Series(names))
    labels = gathered(publishing(tmp_path, scores)).labels
    assert labels == sorted(f"{name}*" for name in names)


@pytest.mark.parametrize(
    ("days", "grain"),
    [
        (1, "day"),
        (120, "day"),
        (121, "week"),
        (840, "week"),
        (841, "month"),
        (3720, "month"),
        (3721, "quarter"),
        (11_040, "quarter"),
        (11_041, "year"),
        (43_920, "year"),
        (43_921, "decade"),
        (439_200, "decade"),
        (439_201, "century"),
        (3_652_059, "century"),
    ],
)
def test_the_grain_is_the_finest_that_makes_few_steps(days: int, grain: str) -> None:
    last = date.min + timedelta(days - 1)
    totals = {"first_day": date.min, "last_day": last}
    assert module._grain(totals) == grain  # noqa: SLF001


@pytest.fixture(scope="module")
def ages(reported: Reported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of some traces in some centuries."""
    days = ["1799-12-31", "1800-01-01", "1899-12-31", "1987-06-05", "1999-12-31", "2026-02-28"]
    return publishing(tmp_path_factory.mktemp("ages"), on(reported.scores, days))


def on(scores: pl.DataFrame, days: list[str]) -> pl.DataFrame:
    """As many of the scores, of traces made on these days."""
    moments = pl.Series([datetime.fromisoformat(f"{text}T23:59:59Z") for text in days])
    return scores.head(len(days)).with_columns(created_at=moments)


def started(years: int) -> pl.Expr:
    """The first day of so many years."""
    return pl.date(day().dt.year() // years * years, 1, 1)


STEPS: Mapping[str, tuple[str, pl.Expr, str]] = {
    "day": ("reported", day(), "1d"),
    "week": ("reported", day().dt.truncate("1w"), "1w"),
    "month": ("reported", day().dt.truncate("1mo"), "1mo"),
    "quarter": ("ages", day().dt.truncate("1q"), "3mo"),
    "year": ("ages", started(1), "1y"),
    "decade": ("ages", started(10), "10y"),
    "century": ("ages", started(100), "100y"),
}


@pytest.mark.slow
@pytest.mark.parametrize("grain", STEPS)
def test_time_goes_in_steps_without_a_gap_whose_sums_are_those_of_polars(
    reported: Reported, ages: Path, monkeypatch: pytest.MonkeyPatch, grain: str
) -> None:
    which, truncated, length = STEPS[grain]
    scores = reported.scores if which == "reported" else ask(ages, "FROM scores")
    monkeypatch.setattr(module, "_GRAINS", {grain: 10**7} if grain != "century" else {})
    data = gathered(reported.warehouse if which == "reported" else ages)
    assert data.grain == grain
    assert_same(data.over_time, over_time(scores, truncated, length))
    assert data.over_time["traces"].sum() == len(scores)
    steps = data.over_time.select("start", "end").unique(maintain_order=True)
    assert len(steps) > 2
    assert steps["end"][:-1].to_list() == steps["start"][1:].to_list()
    of_each = data.over_time.group_by("start").len()["len"]
    assert set(of_each) == {scores["task_domain"].n_unique()}


def test_years_one_and_9999_make_steps_too(reported: Reported, tmp_path: Path) -> None:
    scores = on(reported.scores.filter(task_domain="code"), ["0001-01-01", "9999-12-31"])
    data = gathered(publishing(tmp_path, scores))
    assert data.grain == "century"
    assert data.over_time["traces"].to_list() == [1, *[0] * 98, 1]
    assert data.gaps.rows() == [("0001-01-02", "9999-12-30", 3_652_057)]
    assert data.totals["first_day"] == date.min
    assert data.totals["last_day"] == date.max


USUAL = [f"2026-01-{number:02d}" for number in range(1, 19)]
KINDS = {
    "nothing": ([*USUAL, "2016-01-02"], [("usual", 19, "2016-01-02", "2026-01-18")]),
    "ten years before": (
        [*USUAL, "2016-01-01", "1970-01-01"],
        [("before", 2, "1970-01-01", "2016-01-01"), ("usual", 18, "2026-01-01", "2026-01-18")],
    ),
    "more than a tenth": (
        [*USUAL, "2016-01-01", "2016-01-01", "1970-01-01"],
        [("usual", 21, "1970-01-01", "2026-01-18")],
    ),
    "before and after": (
        ["1990-01-01", *USUAL, "2036-01-18"],
        [
            ("before", 1, "1990-01-01", "1990-01-01"),
            ("usual", 18, "2026-01-01", "2026-01-18"),
            ("after", 1, "2036-01-18", "2036-01-18"),
        ],
    ),
}


@pytest.mark.parametrize("which", KINDS)
def test_times_far_from_nearly_all_others_stand_apart_and_charts_leave_them_out(
    reported: Reported, tmp_path: Path, which: str
) -> None:
    days, wanted = KINDS[which]
    data = gathered(publishing(tmp_path, on(reported.scores, days)))
    as_text = pl.col("first_day", "last_day").dt.strftime("%Y-%m-%d")
    assert data.date_outliers.with_columns(as_text).rows() == wanted
    [(traces, first, last)] = [row[1:] for row in wanted if row[0] == "usual"]
    assert data.omitted == len(days) - traces
    assert data.over_time["traces"].sum() == traces
    assert data.domains["traces"][0] == len(days)
    assert str(data.totals["first_day"]) == min(days)
    if len(wanted) > 1:
        assert data.grain == "day"
        assert data.gaps.is_empty()
        assert (data.over_time["start"].min(), data.over_time["start"].max()) == (first, last)
        assert data.over_time["is_over"].all()


def test_the_last_usual_week_is_not_over_because_of_a_time_that_is_left_out(
    reported: Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GRAINS", {"week": 10**7})
    scores = on(reported.scores.filter(task_domain="code"), [*USUAL[:-1], "2036-01-18"])
    data = gathered(publishing(tmp_path, scores))
    assert data.over_time["is_over"].to_list() == [True, True, False]


@pytest.mark.telling
@pytest.mark.slow
def test_times_after_the_run_are_of_the_future_unless_all_are_they_are_left_out(
    tmp_path: Path,
) -> None:
    now = datetime.now(UTC)
    later = [now + timedelta(days=days) for days in (2, 5, 400)]
    moments = [*later, *(now - timedelta(days=days) for days in range(1, 4))]
    rows = [trace(id=f"{moment}", created_at=moment.isoformat()) for moment in moments]
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows[:3])
    rescore_archive(settings(tmp_path))
    data = gathered(tmp_path / "warehouse")
    future = ("future", 3, later[0].date(), later[-1].date())
    assert data.date_outliers.rows() == [future]
    assert (data.omitted, data.over_time["traces"].sum(), len(data.gaps)) == (0, 3, 2)
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows)
    rescore_archive(settings(tmp_path))
    data = gathered(tmp_path / "warehouse")
    usual = ("usual", 3, moments[-1].date(), moments[3].date())
    assert data.date_outliers.rows() == [usual, future]
    assert (data.omitted, data.over_time["traces"].sum(), len(data.gaps)) == (3, 3, 0)


def test_nothing_is_reported_of_a_warehouse_without_tables(
    reported: Reported, tmp_path: Path
) -> None:
    publish_tables(tmp_path, Manifest({"threshold": 0.75}, {}))
    data = gathered(tmp_path)
    assert (data.run, data.failed, data.labels, data.grain) == (None, None, [], "day")
    assert data.totals == EMPTY_TOTALS
    assert data.bins(None) == [0] * 20
    for name in FRAMES:
        frame = getattr(data, name)
        assert frame.is_empty(), name
        assert frame.columns == getattr(reported.data, name).columns, name


def test_where_the_only_run_failed_its_reason_and_its_rejects_are_reported(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(confidence=7.0), b"no more"])
    with pytest.raises(ArchiveError) as failed:
        rescore_archive(settings(tmp_path, threshold=0.75))
    data = gathered(tmp_path / "warehouse")
    assert data.run is None
    assert data.failed is not None
    assert data.failed.status == "failed"
    assert data.failed.reason == str(failed.value)
    assert data.labels == []
    assert data.totals == EMPTY_TOTALS | {"threshold": None}  # no run has set one
    assert data.rejects.rows() == [
        ("bad_confidence", "(never scored)", 1),
        ("malformed_json", "(unknown)", 1),
    ]
    others = [name for name in FRAMES if name != "rejects"]
    assert all(getattr(data, name).is_empty() for name in others)


@pytest.mark.slow
def test_a_failed_run_is_reported_until_one_succeeds_and_is_no_run_to_compare_with(
    tmp_path: Path,
) -> None:
    rows = [trace(id=f"kp:trace:{number}") for number in range(3)]
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows[:2])
    good = rescore_archive(settings(tmp_path))
    write_jsonl(tmp_path / "archive" / "b.jsonl", [b"no more"])
    with pytest.raises(ArchiveError):
        rescore_archive(settings(tmp_path, max_reject_share=0))
    data = gathered(tmp_path / "warehouse")
    assert data.run is not None
    assert data.failed is not None
    assert data.run.run_id == good.run_id != data.failed.run_id
    assert data.failed.status == "failed"
    assert data.domains["traces"].to_list() == [2, 2]
    assert data.rejects.rows() == [("malformed_json", "(unknown)", 1)]
    assert data.drift.is_empty()
    (tmp_path / "archive" / "b.jsonl").unlink()
    write_jsonl(tmp_path / "archive" / "c.jsonl", rows[2:])
    again = rescore_archive(settings(tmp_path))
    data = gathered(tmp_path / "warehouse")
    assert data.failed is None
    assert data.run is not None
    assert data.run.run_id == again.run_id
    assert data.drift.select("domain", "traces_a", "traces_b").rows() == [
        (None, 2, 3),
        ("code", 2, 3),
    ]
