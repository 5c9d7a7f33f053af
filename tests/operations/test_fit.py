"""Weights from labels: what is read, fitted, decided and written."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import KpBatchError, WarehouseError
from kp_batch.operations.fit import FitOptions, fit_weights
from kp_batch.operations.fit_chart import order_spec
from kp_batch.operations.fit_labels import REASONS
from kp_batch.operations.fit_result import WeightFit
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.scoring.profiles import load_profiles
from kp_batch.warehouse.open_snapshot import open_published
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.hourly import settings_of
from tests.support.processes.commands import invoke
from tests.support.read.folders import contents

pytestmark = pytest.mark.slow

PLANTED = np.array([0.1, 0.1, 0.1, 0.7])
_STEPS = ("thought", "tool_call", "observation", "error_recovery")
_A_DAY = 86_400


def drawn_traces(number: int = 700, seed: int = 3) -> list[dict[str, Any]]:
    """Traces of two domains with drawn steps, tools and outcomes, two attempts at each task."""
    draw = np.random.default_rng(seed)
    return [
        trace(
            id=f"t{place}",
            created_at=datetime.fromtimestamp(1.77e9 + place * _A_DAY / 8, UTC).isoformat(),
            task_domain=("code", "finance")[place // 2 % 2],
            objective=f"task {place // 2}",
            confidence=float(draw.random()),
            success=bool(draw.random() < 0.7),
            steps=[
                step(_STEPS[draw.integers(4)], f"word {draw.integers(300)}", *tool)
                for _ in range(draw.integers(1, 9))
                for tool in [[f"tool {draw.integers(5)}"] if draw.random() < 0.5 else []]
            ],
        )
        for place in range(number)
    ]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit")
    write_jsonl(folder / "archive" / "a.jsonl", drawn_traces())
    rescore_archive(settings_of(folder))
    return folder / "warehouse"


@pytest.fixture(scope="module")
def scores(warehouse: Path) -> pl.DataFrame:
    with open_published(warehouse) as snapshot:
        return snapshot.ask("FROM published.scores ORDER BY trace_id")


def planted_in_code(scores: pl.DataFrame, seed: int = 1) -> pl.DataFrame:
    """Yes and no by the outcome in code, and at random in finance."""
    draw = np.random.default_rng(seed)
    wanted = (scores.select(DIMENSIONS).to_numpy() @ PLANTED) + draw.normal(0, 0.05, len(scores))
    by_chance = draw.random(len(scores)) < 0.5
    is_code = scores["task_domain"].to_numpy() == "code"
    verdicts = np.where(is_code, wanted > 0.4, by_chance)
    return scores.select("trace_id", label=pl.Series(verdicts))


def decisions(result: WeightFit) -> dict[str | None, str | None]:
    return {row["task_domain"]: row["decision"] for row in result.groups}


@pytest.mark.telling
def test_where_one_domain_is_planted_only_its_weights_change(
    warehouse: Path, scores: pl.DataFrame
) -> None:
    before = contents(warehouse)
    result = fit_weights(warehouse, planted_in_code(scores))
    assert contents(warehouse) == before
    assert (result.measure, result.labels, result.changed) == ("AUC", 700, ("code",))
    assert decisions(result) == {None: None, "code": "change", "finance": "no signal"}
    assert result.conclusion.startswith("the evidence suffices to change the weights of code (AUC")
    built_in = load_profiles().as_json()
    assert {name for name in built_in if result.profiles[name] != built_in[name]} == {"code"}
    assert sum(result.profiles["code"].values()) == pytest.approx(1, abs=1e-12)
    assert result.profiles["code"]["outcome_confidence"] > 0.5
    later = {row["tested_on"] for row in result.orders if row["task_domain"] == "code"}
    assert "later labels" in later


def test_the_order_of_rows_changes_nothing(warehouse: Path, scores: pl.DataFrame) -> None:
    labels = planted_in_code(scores)
    shuffled = labels.sample(fraction=1, shuffle=True, seed=1)
    assert fit_weights(warehouse, labels) == fit_weights(warehouse, shuffled)


def test_thresholds_count_the_traces_of_the_warehouse(
    warehouse: Path, scores: pl.DataFrame
) -> None:
    result = fit_weights(warehouse, planted_in_code(scores).head(300))
    for row in result.thresholds:
        rows = scores
        if row["task_domain"]:
            rows = scores.filter(task_domain=row["task_domain"])
        assert row["traces"] == rows.height
        if row["weights"] == "published":
            assert row["at_threshold"] == (rows["score"] >= row["best_threshold"]).sum()
        assert 0 <= row["precision"] <= 1
    assert {row["task_domain"] for row in result.thresholds} == {None, "code", "finance"}


def test_numbers_are_ordered_by_rank_and_have_no_threshold(
    warehouse: Path, scores: pl.DataFrame
) -> None:
    labels = scores.select("trace_id", label=pl.col("outcome_confidence") + pl.col("novelty") * 0.5)
    result = fit_weights(warehouse, labels)
    assert result.measure == "Spearman"
    assert not result.thresholds
    assert "code" in result.changed


@pytest.mark.parametrize("column", ["success", "score", "outcome_confidence"])
def test_a_label_that_repeats_the_score_is_reported_and_changes_nothing(
    warehouse: Path, scores: pl.DataFrame, column: str
) -> None:
    label = pl.col(column) if column == "success" else pl.col(column) > 0.5
    result = fit_weights(warehouse, scores.select("trace_id", label=label))
    assert {row["column"] for row in result.leaks} >= {column}
    assert result.changed == ()
    assert f"LEAK: in code, {column} alone orders the labels" in str(result)
    assert (
        result.conclusion == "no evidence to change any weights: labels repeat what the score has"
    )


def test_labels_that_cannot_be_used_have_reasons_and_examples(
    warehouse: Path, scores: pl.DataFrame
) -> None:
    good = planted_in_code(scores).head(60).with_columns(pl.col("label").cast(pl.String))
    odd = [
        {"trace_id": None, "label": "yes"},
        {"trace_id": "", "label": "yes"},
        {"trace_id": "t9", "label": " "},
        {"trace_id": "t9", "label": "perhaps"},
        {"trace_id": "t9", "label": float("inf")},
        {"trace_id": "t9", "label": "yes", "weight": 0},
        {"trace_id": "t9", "label": "yes", "weight": "heavy"},
        {"trace_id": "nowhere", "label": "no"},
        good.row(0, named=True),
        {**good.row(1, named=True), "label": "true" if good["label"][1] == "false" else "false"},
    ]
    rows = [{"weight": 1, **row} for row in [*good.to_dicts(), *odd]]
    result = fit_weights(warehouse, rows)
    found = {row["code"]: (row["labels"], row["examples"][0]) for row in result.unused}
    assert found == {
        "no_trace_id": (2, "row 61: yes"),
        "no_label": (1, "row 63: t9"),
        "bad_label": (2, "row 64: t9 perhaps"),
        "bad_weight": (2, "row 66: t9 yes"),
        "unknown_trace": (1, "row 68: nowhere no"),
        "repeated": (1, f"row 69: {good['trace_id'][0]} {good['label'][0]}"),
        "contradicting": (2, f"row 2: {good['trace_id'][1]} {good['label'][1]}"),
    }
    assert {*found} == {*REASONS}
    assert result.labels == 59
    text = str(result)
    assert "59 labels used, 11 not used" in text
    assert "    1: no trace with a score has this id (row 68: nowhere no)" in text


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            [{"id": "t1", "label": 1}],
            "no column trace_id; its columns are id, label; add it",
        ),
        ([], "labels has no column trace_id and no column label; its columns are none; add it"),
        (3, "labels is of type int; give a file"),
        (["t1"], "labels contains a value of type str"),
        (
            [{"trace_id": "t1", "label": "yes"}, {"trace_id": "t2", "label": 3}],
            "row 1 has 'yes', row 2",
        ),
        (
            [{"trace_id": "t1", "label": 1}, {"trace_id": "t2", "label": 1}],
            r"all usable labels \(2\) are 1, so there is nothing to order; add different ones",
        ),
        (
            [{"trace_id": "t1", "label": "Yes"}, {"trace_id": "t2", "label": "down"}],
            r"all usable labels \(1; others: 1 because it is neither yes nor no, .*\) are Yes",
        ),
        (
            [{"trace_id": "x", "label": 1}],
            "no label can be used for .*: 1 because no trace .*; give the trace_id",
        ),
    ],
)
def test_labels_that_cannot_be_fitted_are_refused(
    warehouse: Path, labels: Any, message: str
) -> None:
    with pytest.raises(KpBatchError, match=message):
        fit_weights(warehouse, labels)


def test_there_must_be_scores(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError):
        fit_weights(tmp_path / "none", [{"trace_id": "t1", "label": 1}])


def test_few_labels_have_no_evidence(warehouse: Path, scores: pl.DataFrame) -> None:
    result = fit_weights(warehouse, planted_in_code(scores).head(12))
    assert {*decisions(result).values()} == {None, "too few labels"}
    assert result.next_step is None
    assert result.conclusion == "no evidence to change any weights: the labels are too few"


def test_the_file_has_all_profiles_dated_weights_and_the_evidence(
    tmp_path: Path, warehouse: Path, scores: pl.DataFrame
) -> None:
    labels = tmp_path / "labels.csv"
    planted_in_code(scores).write_csv(labels)
    file = tmp_path / "profiles.toml"
    to = ("--warehouse", warehouse)
    done = invoke("fit", labels, "-o", file, "--from", "2026-03-01", *to)
    assert done.returncode == 0, done.stderr
    assert f"next: kp-batch run --preview --profiles {file} --warehouse {warehouse}" in done.stdout
    written, built_in = load_profiles(file), load_profiles()
    assert {*written.versions} == {*built_in.versions}
    old, new = written.versions["code"]
    assert [old] == [*built_in.versions["code"]]
    assert new.date == "2026-03-01"
    assert written.versions["finance"] == built_in.versions["finance"]
    text = file.read_text()
    assert "# 350 labels of 175 tasks: change" in text
    assert "#   AUC, held-out folds: " in text
    assert "#   outcome_confidence 0." in text
    again = invoke("fit", labels, "--profiles", file, *to)
    assert f"REUSED: 100% of these labels were fitted before, for {file}" in again.stdout
    assert "no evidence to change any weights" in again.stdout
    others = invoke("fit", labels, "-o", file, "--from", "2026-07-01", *to)
    assert "REUSED" not in others.stdout  # its weights are not published
    printed = json.loads(invoke("fit", labels, "-o", file, *to, "--json").stdout)
    assert printed["changed"] == ["code"]
    assert load_profiles(file).versions["code"][0].valid_from is None


def test_labels_are_known_again_however_often_the_file_is_written(
    tmp_path: Path, warehouse: Path, scores: pl.DataFrame
) -> None:
    file = tmp_path / "profiles.toml"
    labels = planted_in_code(scores)
    assert fit_weights(warehouse, labels, FitOptions(output=file)).reused is None
    tested = FitOptions(profiles=file, output=file)
    for _ in range(2):
        result = fit_weights(warehouse, labels, tested)
        assert (result.changed, result.reused, result.reused_in) == ((), 1, str(file))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("labels.csv", b"trace_id,label\n", "does not end with .toml; name such a file"),
        ("-", None, "does not end with .toml"),
        ("kp_batch.toml", b"[run]\n", "exists, and kp-batch fit did not write it; name another"),
        ("odd.toml", b"\xff", "exists, and kp-batch fit did not write it"),
        (
            "none/a.toml",
            None,
            "cannot be written: No such file .*; name a file in an existing folder",
        ),
        ("x" * 300 + ".toml", None, "cannot be written: File name too long; name"),
    ],
)
def test_only_a_file_of_fit_is_replaced(
    tmp_path: Path, warehouse: Path, name: str, content: bytes | None, message: str
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(KpBatchError, match=message):
        fit_weights(warehouse, [], FitOptions(output=file))
    assert content is None or file.read_bytes() == content


def test_a_file_leaves_out_an_order_that_is_unknown(
    tmp_path: Path, warehouse: Path, scores: pl.DataFrame
) -> None:
    """Published weights give all traces the same score, so that ranks have no correlation."""
    alike = scores.filter(tool_diversity=0.0, single_thought=False, recovery_bonus=False)
    profiles = tmp_path / "profiles.toml"
    weights = "complexity = 0\nnovelty = 0\ntool_diversity = 1\noutcome_confidence = 0\n"
    profiles.write_text("".join(f"[profiles.{name}]\n{weights}" for name in ("code", "finance")))
    labels = alike.select("trace_id", label=pl.col("novelty") + pl.col("complexity"))
    options = FitOptions(profiles=profiles, output=tmp_path / "fitted.toml")
    result = fit_weights(warehouse, labels, options)
    assert any(row["difference"] is None for row in result.orders)
    assert "labels of" in (tmp_path / "fitted.toml").read_text()


_OTHERS = "complexity = 0.4\nnovelty = 0.3\ntool_diversity = 0.2\noutcome_confidence = 0.1\n"


def test_fitted_weights_begin_no_earlier_than_those_that_they_replace(
    tmp_path: Path, warehouse: Path, scores: pl.DataFrame
) -> None:
    dated = tmp_path / "dated.toml"
    dated.write_text(f"[[profiles.code]]\nfrom = 2026-03-01\n{_OTHERS}")
    options = FitOptions(profiles=dated, begin=datetime(2026, 2, 28, tzinfo=UTC))
    with pytest.raises(KpBatchError, match=r"weights of code begin later, from 2026-03-01; choose"):
        fit_weights(warehouse, planted_in_code(scores).head(12), options)  # before any fit
    same = FitOptions(profiles=dated, begin=datetime(2026, 3, 1, tzinfo=UTC))
    result = fit_weights(warehouse, planted_in_code(scores), same)
    assert [each.get("from") for each in result.profiles["code"]] == [None, "2026-03-01"]


def test_weights_that_begin_after_the_newest_trace_are_not_compared_and_stay(
    tmp_path: Path, warehouse: Path, scores: pl.DataFrame
) -> None:
    dated = tmp_path / "dated.toml"
    dated.write_text(f"[[profiles.code]]\nfrom = 2027-01-01\n{_OTHERS}")
    labels = planted_in_code(scores)
    plain, result = (
        fit_weights(warehouse, labels, FitOptions(profiles=each)) for each in (None, dated)
    )
    assert result.weights == plain.weights
    assert result.orders == plain.orders
    own, later = result.profiles["code"]
    assert own == plain.profiles["code"]
    assert later == load_profiles(dated).as_json()["code"][1]
    begins = [datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 2, 1, tzinfo=UTC)]
    dates = [
        [each.get("from") for each in fit_weights(warehouse, labels, options).profiles["code"]]
        for options in (FitOptions(profiles=dated, begin=begin) for begin in begins)
    ]
    assert dates == [[None, "2026-12-01", "2027-01-01"], [None, "2027-01-01", "2027-02-01"]]


def test_the_output_is_no_file_of_the_warehouse(warehouse: Path, scores: pl.DataFrame) -> None:
    options = FitOptions(output=warehouse / "profiles.toml")
    with pytest.raises(KpBatchError, match="in the warehouse"):
        fit_weights(warehouse, planted_in_code(scores), options)


def test_suggestions_are_of_tasks_without_labels_one_each(
    warehouse: Path, scores: pl.DataFrame
) -> None:
    labels = planted_in_code(scores).head(200)
    result = fit_weights(warehouse, labels, FitOptions(suggest=10))
    tasks = dict(scores.select("trace_id", "objective_hash").rows())
    found = [tasks[row["trace_id"]] for row in result.suggestions]
    assert len(found) == len({*found}) == 10
    assert {*found}.isdisjoint(tasks[trace_id] for trace_id in labels["trace_id"])
    widths = [row["rank_high"] - row["rank_low"] for row in result.suggestions]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] > 0
    every = fit_weights(warehouse, planted_in_code(scores), FitOptions(suggest=10))
    assert not every.suggestions


def test_weights_count(warehouse: Path, scores: pl.DataFrame) -> None:
    """A label of no weight to speak of says nothing."""
    good = planted_in_code(scores)
    wrong = good.with_columns(label=~pl.col("label"))
    is_good = pl.Series(np.random.default_rng(0).random(len(good)) < 0.5)
    mixed = good.filter(is_good).with_columns(weight=1.0)
    noise = wrong.filter(~is_good).with_columns(weight=1e-6)
    result = fit_weights(warehouse, pl.concat([mixed, noise]))
    assert result.changed == ("code",)


def test_the_result_is_shown_and_charted(warehouse: Path, scores: pl.DataFrame) -> None:
    result = fit_weights(warehouse, planted_in_code(scores))
    values = order_spec(result.orders, result.measure)["data"]["values"]
    assert [(each["domain"], each["weights"]) for each in values] == [
        (domain, weights)
        for domain in ("all domains", "code", "finance")
        for weights in ("published", "fitted")
    ]
    assert all(each["low"] <= each["order"] <= each["high"] for each in values)
    assert result.chart().to_dict()["width"] == 440
    assert asdict(result)["groups"] == result.groups
