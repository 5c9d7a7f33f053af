"""The status as metrics: each line as the text format of Prometheus has it."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kp_batch.operations.prometheus import metrics_text
from kp_batch.operations.status import WarehouseStatus
from kp_batch.warehouse.run_result import RunResult
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
BEGAN = NOW - timedelta(hours=1)
ENDED = BEGAN + timedelta(seconds=90.25)
DONE = RunResult(status="done", started_at=BEGAN.isoformat(), finished_at=ENDED.isoformat())
FAILED = replace(DONE, status="failed")
NAME, LABEL = "[a-zA-Z_:][a-zA-Z0-9_:]*", r'"(?:[^"\\\n]|\\["\\n])*"'


def samples(text: str) -> dict[str, float]:
    """The value of each metric of the one warehouse.

    Each metric is three lines: its help, its type, its only sample. Prometheus' own reader, which
    forgives more, finds the same.
    """
    lines = text.splitlines(keepends=True)
    assert len(lines) % 3 == 0
    found: dict[str, float] = {}
    for help_, kind, sample in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        read = re.fullmatch(rf"({NAME})\{{warehouse={LABEL}\}} (-?\d+\.\d+)\n", sample)
        assert read, sample
        name, value = read.groups()
        assert name not in found
        assert re.fullmatch(rf"# HELP {name} [^\\\n]+\.\n|# HELP {name} [^\\\n]+: 1 or 0.\n", help_)
        assert kind == f"# TYPE {name} gauge\n"
        found[name] = float(value)
    families = [*text_string_to_metric_families(text)]
    assert {each.name: each.samples[0].value for each in families} == found
    return found


def of(last: RunResult | None, success: RunResult | None, **more: Any) -> str:
    values: dict[str, Any] = {"warehouse": "/wh", "is_new": False, "free_bytes": None}
    values |= {"age_s": None, "trace_age_s": None}
    status = WarehouseStatus(**values | more, last_run=last, last_success=success)
    return metrics_text(status, NOW)


@pytest.mark.parametrize(
    ("last", "success", "told"),
    [
        (None, None, {}),
        (DONE, DONE, {"last_success_timestamp_seconds": ENDED.timestamp(), "last_run_success": 1}),
        (FAILED, None, {"last_run_success": 0}),
        (replace(FAILED, status="killed"), None, {"last_run_success": 0}),
        (replace(DONE, status="nothing_to_do"), None, {"last_run_success": 1}),
    ],
)
def test_success_is_1_or_0_and_what_is_unknown_is_left_out(
    last: RunResult | None, success: RunResult | None, told: dict[str, float]
) -> None:
    told = told | ({"last_run_duration_seconds": 90.25} if last else {})
    assert samples(of(last, success)) == {f"kp_batch_{name}": told[name] for name in told}


def test_a_run_under_way_has_not_failed() -> None:
    running = replace(DONE, status="running", finished_at=None)
    assert [*samples(of(running, DONE))] == ["kp_batch_last_success_timestamp_seconds"]


def test_a_warehouse_of_any_name_is_one_label() -> None:
    name = 'a "b"\\n\nc} 1'
    text = of(DONE, DONE, warehouse=name)
    [label, *_] = [each.samples[0].labels for each in text_string_to_metric_families(text)]
    assert label == {"warehouse": name}
    assert len(samples(text)) == 3


def test_a_command_prints_the_metrics_of_a_warehouse(tmp_path: Path) -> None:
    rows = [trace(created_at="2026-01-05T08:00:00Z"), trace(id="bad", confidence=2)]
    words = [write_jsonl(tmp_path / "a.jsonl", rows), "--embedder", "none", "--no-prefect"]
    place = ["--warehouse", tmp_path / "wh"]
    began = datetime.now(UTC).timestamp()
    assert invoke("run", *words, *place, "--max-reject-share", "100%").returncode == 0
    done = invoke("status", "--prometheus", *place)
    found = {name.removeprefix("kp_batch_"): each for name, each in samples(done.stdout).items()}
    assert (done.returncode, done.stderr) == (0, "")
    assert began - 1 < found.pop("last_success_timestamp_seconds") < began + 300
    assert 0 < found.pop("last_run_duration_seconds") < 300
    assert found.pop("newest_trace_timestamp_seconds") == pytest.approx(
        datetime(2026, 1, 5, 8, tzinfo=UTC).timestamp(), abs=0.002
    )
    assert found == {"last_run_success": 1, "accepted_traces": 1, "rejected_rows": 1}
    old = invoke("status", "--prometheus", "--max-trace-age", "1d", *place)
    assert (old.returncode, len(samples(old.stdout))) == (1, 6)
    assert invoke("status", "--prometheus", "--json", *place).returncode == 2
    assert invoke("status", "--prometheus", "--warehouse", tmp_path / "none").stdout == ""
