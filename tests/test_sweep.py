"""A sweep's scores are those of runs with the same settings, to the bit."""

import json
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import asdict, astuple, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page
from pydantic import TypeAdapter

import kp_batch.operations.sweep_replay
import kp_batch.pipeline.fit
from kp_batch.cli import sweeping  # noqa: F401 (it adds the command)
from kp_batch.cli.group import kp_batch as group
from kp_batch.cli.sweep_text import sweep_text
from kp_batch.config import RescoreConfig
from kp_batch.embedding.chunks import write_chunk
from kp_batch.errors import KpBatchError, ResourceError, WarehouseError
from kp_batch.novelty.replay import replay
from kp_batch.novelty.settings import CacheSettings, parse_ttl
from kp_batch.operations.forget import forget
from kp_batch.operations.sweep import page_of, sweep
from kp_batch.operations.sweep_replay import SWEPT, sweep_span, sweep_spans
from kp_batch.operations.sweep_result import Outcome, Sweep
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.sample import write_sample
from kp_batch.scoring.profiles import load_profiles
from kp_batch.staging import Staging
from kp_batch.vectors import normalised
from kp_batch.warehouse.layout import Layout
from tests.archives import trace, write_jsonl
from tests.browsing import CHROMIUM, opened
from tests.buckets import Machine
from tests.test_cli import check_signal, linux, working
from tests.test_cli import kp_batch as run_kp_batch
from tests.test_compare import compared
from tests.test_keeping import listing
from tests.test_page import marks
from tests.test_rescore import ask, config

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: see the end of this output")
IN_FORCE = {"cache_size": 40, "ttl": "3h", "threshold": 0.55}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    write_sample(folder, traces=180, days=3, seed=5)
    at_once = (trace(id=f"{each * 7 % 20:02d}", objective=f"task {each}") for each in range(20))
    write_jsonl(folder / "at-once.jsonl", at_once)
    return folder


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> RescoreConfig:
    """The settings of a warehouse's only run."""
    own = config(tmp_path_factory.mktemp("scored"), archive, **IN_FORCE)
    rescore_archive(own)
    return own


def swept(
    warehouse: Path,
    sizes: Sequence[int] = (),
    ttls: Sequence[str] = (),
    thresholds: Sequence[float] = (),
) -> Sweep:
    with TemporaryDirectory() as folder:
        return sweep(warehouse, Staging(Path(folder)), sizes, ttls, thresholds)


def of_runs(own: RescoreConfig, cache_size: int, ttl: str, threshold: float) -> list[Outcome]:
    """What a second run of the warehouse leaves, and how it compares with its first."""
    changed = {"cache_size": cache_size, "ttl": ttl, "threshold": threshold}
    again = RescoreConfig.model_validate({**own.model_dump(), **changed})
    rescore_archive(again)
    [(first,)] = ask(own, "SELECT min(run_id) FROM runs")
    means = ask(
        again,
        "SELECT task_domain, score_mean(novelty), count(*) FILTER (meets_threshold) FROM scores "
        "GROUP BY ROLLUP (task_domain)",
    )
    novelty = {domain: (mean, shared) for domain, mean, shared in means}
    return [
        Outcome(
            task_domain=row.task_domain,
            cache_size=cache_size,
            ttl=ttl,
            threshold=threshold,
            in_force=changed == IN_FORCE,
            traces=row.traces,
            mean_novelty=novelty[row.task_domain][0],
            mean_score=row.second_mean,
            mean_change=pytest.approx(row.second_mean - row.first_mean, abs=3e-12),
            rank_correlation=pytest.approx(row.rank_correlation, abs=1e-12),
            worth_sharing=novelty[row.task_domain][1],
            now_reach=row.now_reach,
            no_longer_reach=row.no_longer_reach,
        )
        for row in compared(own.warehouse, first, "latest").domains
    ]


def test_each_combination_is_a_run_with_these_settings(
    tmp_path: Path, scored: RescoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.operations.sweep_replay, "RANGE_ROWS", 64)
    sizes, ttls, thresholds = (1, 40, 10**6), ("none", "1s", "3h"), (0.1, 0.55, 0.7)
    found = swept(scored.warehouse, sizes, ttls, thresholds)
    assert found.traces == 200
    given = list(product(sizes, ttls, thresholds))
    assert len(found.outcomes) == len(given) * len({row.task_domain for row in found.outcomes})
    assert [row.in_force for row in found.outcomes].count(True) == len(found.outcomes) / len(given)
    own = config(tmp_path, *map(Path, scored.archive), **IN_FORCE)
    rescore_archive(own)
    for each in ((40, "3h", 0.55), (1, "none", 0.7), (10**6, "1s", 0.1)):
        told = [row for row in found.outcomes if astuple(row)[1:4] == each]
        assert told == of_runs(own, *each), each


def test_every_trace_is_scored_as_by_a_run(
    tmp_path: Path, scored: RescoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.operations.sweep_replay, "RANGE_ROWS", 64)
    staging = Staging(tmp_path / "staging")
    sweep(scored.warehouse, staging, [7], ["1h", "none"])
    files = sorted((staging.folder / "replayed").iterdir())
    assert len(files) == 4
    rows = pl.concat(pl.read_parquet(each) for each in files)
    own = config(tmp_path, *map(Path, scored.archive))
    for number, (size, ttl) in enumerate(((40, "3h"), (7, "1h"), (7, "none"))):
        rescore_archive(own.model_copy(update={"cache_size": size, "ttl": parse_ttl(ttl)}))
        by_run = ask(own, "SELECT novelty, score FROM scores ORDER BY created_at, trace_id")
        assert rows.filter(cache=number).select("novelty", "score").rows() == by_run
        first = rows.filter(cache=0).get_column("score")
        assert rows.filter(cache=number).get_column("score_in_force").equals(first)


TIMES = st.lists(st.integers(0, 6).map(lambda each: each * 500_000), min_size=1, max_size=30)
CACHES = st.builds(
    CacheSettings,
    st.integers(1, 40),
    st.none() | st.integers(1, 4).map(lambda each: timedelta(seconds=each)),
)


@settings(
    max_examples=25,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data(), TIMES.map(sorted), st.lists(CACHES, min_size=1, max_size=4), st.integers(1, 12))
def test_however_spans_are_cut_novelty_is_that_of_the_whole_history(
    monkeypatch: pytest.MonkeyPatch,
    data: st.DataObject,
    times: list[int],
    caches: list[CacheSettings],
    length: int,
) -> None:
    monkeypatch.setattr(kp_batch.operations.sweep_replay, "RANGE_ROWS", length)
    drawn = data.draw(st.lists(st.integers(-3, 3), min_size=len(times), max_size=len(times)))
    vectors = normalised(np.array([[each, 1, each % 2, 0.5] for each in drawn], dtype=np.float64))
    with TemporaryDirectory() as folder:
        staging = Staging(Path(folder))
        staging.make()
        chunk = write_chunk(Path(folder), pl.Series(map(str, range(len(times)))), vectors)
        rows = pl.int_range(len(times), dtype=pl.Int32, eager=True)
        pl.DataFrame({"chunk": chunk, "row": rows}).write_parquet(staging.vectors)
        traces_at(times).write_parquet(staging.replay)
        profiles = load_profiles()
        files = [
            sweep_span(span, caches, profiles, Path(folder), staging)
            for span in sweep_spans(staging, caches)
        ]
        found = pl.concat(pl.read_parquet(each) for each in files)
    assert found.schema == SWEPT
    for number, cache in enumerate(caches):
        whole = replay(vectors, np.array(times), max_elements=cache.size, ttl=cache.ttl)
        assert found.filter(cache=number)["novelty"].to_list() == whole.novelty.tolist()


def traces_at(times: list[int]) -> pl.DataFrame:
    """Rows as sweep_timeline.sql makes them."""
    return pl.DataFrame({"created_at": times}).select(
        pl.col("created_at").cast(pl.Datetime("us", "UTC")),
        task_domain=pl.lit("code"),
        **dict.fromkeys(("complexity", "tool_diversity", "outcome_confidence"), pl.lit(0.5)),
        **dict.fromkeys(
            ("single_thought", "recovery_bonus", "low_diversity_penalty"), pl.lit(value=False)
        ),
    )


def test_missing_vectors_are_made_by_what_the_message_says(tmp_path: Path, archive: Path) -> None:
    own = config(tmp_path, archive, embedder="none")
    rescore_archive(own)
    with pytest.raises(KpBatchError, match=r"without an encoder, .* with an --embedder first"):
        swept(own.warehouse)
    rescore_archive(config(tmp_path, archive))  # whose cache holds all of them
    shutil.rmtree(Layout(own.warehouse).all_vectors)
    told = r"^200 vectors of .*: they were lost; .* --embedder none, and .* --embedder hashing$"
    with pytest.raises(WarehouseError, match=told):
        swept(own.warehouse)
    for embedder in ("none", "hashing"):
        rescore_archive(config(tmp_path, archive, embedder=embedder))
    assert swept(own.warehouse).traces == 200


def test_a_warehouse_without_a_score_has_none_to_sweep(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="is no warehouse; run an archive first"):
        swept(tmp_path)
    lone = write_jsonl(tmp_path / "a.jsonl", [trace(id="lone")])
    rescore_archive(config(tmp_path, lone))
    found = swept(tmp_path / "warehouse", [1, 10**17], ["1s", "none"])
    assert {(row.mean_novelty, row.rank_correlation) for row in found.outcomes} == {(0.5, None)}
    forget(tmp_path / "warehouse", ["lone"])
    with pytest.raises(WarehouseError, match=r"no trace is scored in .*warehouse; run an archive"):
        swept(tmp_path / "warehouse")


def test_windows_that_fit_into_no_memory_are_refused(
    scored: RescoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kp_batch.pipeline.fit, "available_bytes", lambda: 512 << 20)
    with pytest.raises(ResourceError, match=r"the vectors of 200 traces .* a smaller --cache-size"):
        swept(scored.warehouse)


@pytest.mark.parametrize(
    ("option", "value", "got"),
    [
        *(("--cache-size", each, got) for each, got in (("0", "0"), ("8,x", "x"), ("1.5", "1.5"))),
        *(
            ("--cache-size", each, got)
            for each, got in (("", ""), ("5,", ""), ("9" * 19, "9" * 19))
        ),
        *(("--ttl", each, got) for each, got in (("7d,0s", "0s"), ("7", "7"), ("-1d", "-1d"))),
        *(("--threshold", each, got) for each, got in (("0.7,1.1", "1.1"), ("nan", "nan"))),
        ("-o", "page.json", "page.json"),
    ],
)
def test_a_wrong_value_is_told_with_its_option(
    tmp_path: Path, option: str, value: str, got: str
) -> None:
    with pytest.raises(click.BadParameter) as wrong:
        group.main(["sweep", "--warehouse", str(tmp_path), option, value], standalone_mode=False)
    assert wrong.value.exit_code == 2
    assert option in wrong.value.format_message()
    assert wrong.value.format_message().endswith(f"got {got!r}")


def test_the_command_tells_the_same_in_all_forms_and_changes_nothing(
    tmp_path: Path, scored: RescoreConfig
) -> None:
    before, page = listing(scored.warehouse), tmp_path / "page.html"
    asked = ["sweep", "--warehouse", scored.warehouse, "--cache-size", "7, 40", "--ttl", "60m,3h"]
    told = run_kp_batch(*asked, "--json", "-o", page)
    assert told.returncode == 0, told.stderr
    found = TypeAdapter(Sweep).validate_json(told.stdout)
    assert found == swept(scored.warehouse, (7, 40), ("1h", "3h"))
    assert json.loads(told.stdout).keys() == asdict(found).keys()
    assert page.read_text("utf-8") == page_of(found)
    assert f"the page is in {page}" in told.stderr
    shown = run_kp_batch(*asked)
    assert shown.stdout == f"{sweep_text(found)}\n"
    assert max(map(len, shown.stdout.splitlines())) <= 120
    [in_force] = {row for row in found.outcomes if row.in_force and row.task_domain is None}
    [line] = re.findall(r"^all domains.*\n(?:.+\n)*?(.* in force)$", shown.stdout, re.MULTILINE)
    assert line.split()[:4] == ["40", "3h", "0.55", f"{in_force.mean_novelty:.4f}"]
    nowhere = run_kp_batch(*asked, "-o", tmp_path / "none" / "page.html")
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert "cannot be written: No such file or directory" in nowhere.stderr
    assert listing(scored.warehouse) == before
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize(("domains", "more"), [(10, None), (11, "1 more domain"), (12, "2 more d")])
def test_a_terminal_shows_the_domains_with_the_most_traces(domains: int, more: str | None) -> None:
    one = Outcome(None, 40, "3h", 0.5, True, 100, *(0.5,) * 2, 0.0, None, 1, 0, 0)  # noqa: FBT003
    each = [replace(one, task_domain=f"d{n:02}", traces=n + 1) for n in range(domains)]
    told = sweep_text(Sweep("an encoder", 100, (one, *each)))
    assert re.findall(r"^d\d\d, ", told, re.MULTILINE) == [
        f"{row.task_domain}, " for row in each[-10:]
    ]
    assert (more is None) == ("more domain" not in told)
    assert more is None or f"\n\n{more}" in told


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


def test_a_warehouse_in_a_bucket_is_swept_from_its_copy(
    tmp_path: Path, bucket: str, archive: Path, scored: RescoreConfig
) -> None:
    first, second = (Machine(tmp_path / each, f"{bucket}/warehouse") for each in ("a", "b"))
    first.run(archive, **IN_FORCE)
    with second.here():
        told = run_kp_batch("sweep", "--warehouse", second.url, "--cache-size", 7, "--json")
    assert told.returncode == 0, told.stderr
    assert TypeAdapter(Sweep).validate_json(told.stdout) == swept(scored.warehouse, [7])


HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sweep]:
    """The page of a sweep over traces of twelve domains, whose last has more than the others."""
    folder = tmp_path_factory.mktemp("page")
    names = [*(f"domain {each:02d}" for each in range(10)), "__proto__", HOSTILE]
    traces = [
        trace(
            id=f"{name}-{each}",
            task_domain=name,
            created_at=datetime(2026, 1, 5, each, number, tzinfo=UTC).isoformat(),
            objective=f"task {number * each % 5}",
            confidence=each / 10,
        )
        for number, name in enumerate(names)
        for each in range(5 + (number > 9))
    ]
    rescore_archive(config(folder, write_jsonl(folder / "a.jsonl", traces)))
    found = swept(folder / "warehouse", (5, 10, 1_000), ("none", "1h"), (0.5, 0.75))
    (folder / "page.html").write_text(page_of(found), "utf-8")
    return folder / "page.html", found


def points(shown: Page, chart: str, column: str) -> set[str]:
    """What the points of a chart stand for."""
    title = column.replace("_", " ")
    return {each[title] for each in marks(shown, chart, "circle")}


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
@in_browser
def test_the_page_draws_its_charts_without_a_word_of_complaint(
    page: tuple[Path, Sweep], scheme: str, width: int
) -> None:
    path, found = page
    with opened(path, scheme, width) as (shown, said):
        assert said == []
        assert shown.locator(".chart svg.marks").count() == 5
        assert shown.evaluate("document.documentElement.scrollWidth") == width
        overall = [row for row in found.outcomes if row.task_domain is None]
        novelty = {f"{row.mean_novelty:.4f}" for row in overall}
        assert points(shown, "mean_novelty", "mean_novelty") == novelty
        shares = {f"{row.worth_sharing / row.traces:.2%}" for row in overall}
        assert points(shown, "share", "share") == shares


@in_browser
def test_a_chosen_domain_is_shown_alone(page: tuple[Path, Sweep]) -> None:
    path, found = page
    of = [row for row in found.outcomes if row.task_domain == HOSTILE]
    with opened(path) as (shown, said):
        rows = shown.locator("[aria-labelledby=outcomes] tbody tr:visible")
        assert rows.count() == len(of)
        assert "in force" in shown.inner_text(".in-force:visible")
        assert "2 more domains with fewer traces" in shown.inner_text("header")
        shown.locator("#chosen label").filter(has_text=HOSTILE).click()
        shown.wait_for_function("text => document.body.dataset.chosen === text", arg=HOSTILE)
        cells = rows.evaluate_all("rows => rows.map(row => row.cells[5].textContent)")
        assert cells == [f"{row.mean_novelty:.4f}" for row in of]
        assert points(shown, "mean_novelty", "mean_novelty") == set(cells)
        assert {each["domain"] for each in marks(shown, "domains", "point")} == {HOSTILE}
        assert said == []
