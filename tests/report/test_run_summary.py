"""What a run says of itself at its end."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kp_batch.pipeline.publish
import kp_batch.report.run_summary
from kp_batch.errors import ArchiveError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.run_summary import DomainScores, nothing_text, with_all_domains
from kp_batch.steps.step import timed
from kp_batch.text import bar_line
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.read.queries import ask

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ([0] * 10, "▁" * 10),
        ([7, 4, 2, 1, 0], "█▅▃▂▁"),
        ([1000, 1, 0], "█▂▁"),
        ([3], "█"),
        ([], ""),
    ],
)
def test_a_bar_line_is_as_high_as_the_counts_and_hides_none(counts: list[int], line: str) -> None:
    assert bar_line(counts) == line


def test_each_domain_has_its_bar_line_and_hostile_names_are_written_out_and_long_ones_shortened(
    tmp_path: Path,
) -> None:
    domains = ["code", "code", "\x1b[31mred\n# <script>", "x" * (1 << 20)]
    traces = [trace(id=str(n), task_domain=domain) for n, domain in enumerate(domains)]
    write_jsonl(tmp_path / "a.jsonl", traces)
    summary = rescore_archive(config(tmp_path, tmp_path / "a.jsonl", embedder="none"))
    assert sorted(sum(row["bins"]) for row in summary.scores) == [1, 1, 2]
    text = str(summary)
    assert len(text) < 2_000
    assert "\\x1b[31mred\\n# <script>" in text
    assert "\x1b" not in text
    [code] = [line for line in text.splitlines() if line.split()[:1] == ["code"]]
    assert code.count("█") == 1


def test_a_summary_reads_what_the_last_done_run_left(tmp_path: Path) -> None:
    archive = tmp_path / "a.jsonl"

    def run(**settings: Any) -> DomainScores:
        return rescore_archive(config(tmp_path, archive, **settings)).scores

    sound = [
        trace(id=str(confidence), objective=str(confidence), confidence=confidence)
        for confidence in (0.1, 0.5, 1.0)
    ]
    write_jsonl(archive, sound)
    run()
    lowest, highest = ask(tmp_path / "warehouse", "SELECT min(score), max(score) FROM scores").row(
        0
    )
    [every] = run(threshold=lowest)
    [one] = run(threshold=highest)  # a threshold alone makes a run
    assert (every["at_threshold"], one["at_threshold"]) == (3, 1)
    assert {**every, "at_threshold": 1} == one
    write_jsonl(archive, [*sound, trace(id="refused", steps=[])])
    with pytest.raises(ArchiveError):
        run(threshold=0.5, max_reject_share=0)
    write_jsonl(archive, sound)
    assert run(threshold=highest) == (one,)


def test_the_published_distribution_and_the_question_give_the_same_numbers_however_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [
        trace(id=f"{n}", task_domain="abc"[n % 3], confidence=n / 20, objective=f"{n}")
        for n in range(20)
    ]
    numbers = "task_domain, traces, mean, p5, p25, p50, p75, p95"
    settings = config(tmp_path, tmp_path / "a.jsonl", max_reject_share=1)
    for at_once in (None, 1, 2):
        if at_once:
            traces.append(trace(id=f"refused {at_once}", steps=[]))
            monkeypatch.setattr(kp_batch.pipeline.publish, "DOMAINS_PER_QUERY", at_once)
        write_jsonl(tmp_path / "a.jsonl", traces)
        scores = rescore_archive(settings).scores
        distribution = ask(settings.warehouse, f"SELECT {numbers} FROM score_distribution")
        kept = f"SELECT {numbers} FROM distributions WHERE run_id = latest() ORDER BY ALL"
        assert ask(settings.warehouse, f"FROM ({kept}) WHERE task_domain IS NOT NULL").equals(
            distribution
        ), at_once
        assert distribution.rows() == [
            tuple(score[name] for name in numbers.split(", ")) for score in scores
        ], at_once
    query = (
        "SELECT distributions.* EXCLUDE (run_id) FROM distributions JOIN runs USING (run_id) "
        "ORDER BY started_at, task_domain NULLS FIRST"
    )
    rows = ask(settings.warehouse, query).rows()
    assert [row[0] for row in rows[:4]] == [None, "a", "b", "c"]
    assert rows[4:] == rows[:4] * 2


def test_a_summary_shows_the_domains_with_the_most_traces_and_how_many_more_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "a.jsonl"
    domains = [*"dccbbaae"]
    write_jsonl(archive, [trace(id=f"{n}", task_domain=domain) for n, domain in enumerate(domains)])
    every = rescore_archive(config(tmp_path, archive))
    assert [row["task_domain"] for row in every.scores] == [*"abcde"]
    monkeypatch.setattr(kp_batch.report.run_summary, "SHOWN_DOMAINS", 4)
    shown = replace(rescore_archive(config(tmp_path, archive)), run_id=every.run_id)
    assert (shown.domains, shown.scores) == (5, every.scores[:4])
    assert str(shown).endswith("\n  1 more, with fewer traces: see the view distributions")
    assert len(shown.scores) == 4
    assert with_all_domains(tmp_path / "warehouse", shown) == replace(shown, scores=every.scores)


def test_nothing_to_do_is_said_of_one_trace_in_the_singular(tmp_path: Path) -> None:
    counts = rescore_archive(config(tmp_path, write_jsonl(tmp_path / "a.jsonl", [trace()]))).counts
    assert nothing_text(counts) == "nothing to do: 1 score is up to date"


@pytest.mark.telling
def test_a_summary_shows_how_long_the_run_waited_and_for_what(tmp_path: Path) -> None:
    archive = tmp_path / "a.jsonl"
    write_jsonl(archive, [trace()])
    began = time.time() - 1000
    with timed(began):
        summary = rescore_archive(config(tmp_path, archive))
    assert 1000 <= sum(summary.seconds.values()) <= time.time() - began + 0.01  # each is rounded
    steps = ["read", "plan", "embed", "replay", "write", "publish"]
    assert list(summary.seconds) == ["start", *steps]
    alone = {"start": 1.6, "read": 2.25, "write": 4.0}
    for seconds, duration in (
        (alone, "7.8 s (work 6.2 s, start 1.6 s)"),
        ({**alone, "prefect": 5.0}, "12.8 s (work 6.2 s, Prefect 5.0 s, start 1.6 s)"),
    ):
        first, *lines = str(replace(summary, seconds=seconds)).splitlines()
        assert first == f"run {summary.run_id}: 1 of 1 trace rescored in {duration}"
        assert "  seconds    read 2.25, write 4.00" in lines
