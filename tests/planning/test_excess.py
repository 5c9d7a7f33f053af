"""What fails a run that would lose, reject or miss too much, until it is allowed or healed."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError, AuditError
from kp_batch.log import show_on_stderr, show_only_new_warnings
from kp_batch.operations.forget import forget
from kp_batch.operations.rollback import rollback
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.planning.excess import LimitInputs, Loss, exceeded_limits
from kp_batch.planning.explain_plan import PlanDescription
from kp_batch.report.run_summary import Summary
from kp_batch.runs.run import Run
from kp_batch.warehouse.run_record import RunCounts
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.nights import Night
from tests.support.make.runs import config
from tests.support.processes.commands import restored_log
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask

pytestmark = pytest.mark.slow


class ScoredArchive:
    """An archive and its warehouse, scored without an encoder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.archive = folder, folder / "archive"
        self.warehouse = folder / "warehouse"

    def write(self, name: str, good: int, bad: int = 0) -> Path:
        """Write a file of so many traces and faulty rows."""
        stem = name.partition(".")[0]
        rows = [trace(id=f"{stem}-{number:03d}") for number in range(good)]
        faulty = [trace(id=f"{stem}-bad-{number:03d}", steps=[]) for number in range(bad)]
        return write_jsonl(self.archive / name, [*rows, *faulty])

    def config(self, **settings: Any) -> RescoreConfig:
        return config(self.folder, self.archive, **{"embedder": "none", **settings})

    def run(self, **settings: Any) -> Summary:
        return rescore_archive(self.config(**settings))

    def fails(self, **settings: Any) -> str:
        """Run, which fails; returns why."""
        with pytest.raises(ArchiveError) as caught:
            self.run(**settings)
        return str(caught.value)

    def described(self, **settings: Any) -> PlanDescription:
        night = Night(self.folder)
        places = {"warehouse": self.warehouse, "embedder": "none", "cache_size": 1_000}
        return night.described(**{**places, **settings})

    def excess(self, **settings: Any) -> str:
        """Why a run would fail, as its plan says it; empty where it would not."""
        return self.described(**settings).excess or ""

    @property
    def scores(self) -> int:
        return ask(self.warehouse, "SELECT count(*) FROM scores").item()


@pytest.fixture
def empty(tmp_path: Path) -> ScoredArchive:
    return ScoredArchive(tmp_path)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> ScoredArchive:
    nights = ScoredArchive(tmp_path_factory.mktemp("nights") / "made")
    nights.write("a.jsonl", 600)
    nights.write("z.jsonl", 40)
    nights.run()
    keep(nights.folder)
    return nights


@pytest.fixture
def nights(scored: ScoredArchive) -> ScoredArchive:
    """Two files whose traces are scored, 600 and 40: more than ten, and than 5% of all."""
    restore(scored.folder)
    return scored


def at_a_line(path: Path) -> None:
    """Cut a file in half, at a line's end."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))


def in_a_line(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 + 30])


def test_a_cut_file_fails_every_night_until_it_is_whole_again_or_its_loss_is_allowed(
    nights: ScoredArchive,
) -> None:
    path = nights.archive / "a.jsonl"
    fault = (
        "300 of 640 published traces are to be removed, more than 5% and more than 10, "
        f"the default of --max-removed (such as one of {path}); no scores are published; "
        "to allow it this once: --max-removed 300"
    )
    at_a_line(path)
    assert [nights.fails(), nights.excess(), nights.scores] == [fault, fault, 640]
    nights.write("a.jsonl", 600)
    assert nights.run().counts.removed == 0
    assert nights.scores == 640
    at_a_line(path)
    assert nights.run(max_removed=300).counts.removed == 300
    assert nights.run().run_id is None


def test_a_file_that_is_cut_within_a_line_loses_nothing_and_is_unreadable(
    nights: ScoredArchive,
) -> None:
    path = nights.archive / "a.jsonl"
    in_a_line(path)
    assert nights.excess(max_unreadable=0).startswith("1 of 2 files is unreadable")
    assert nights.run(max_removed=0, max_reject_share=0).counts.removed == 0
    assert nights.scores == 640
    cut = nights.write("b.jsonl", 40)
    in_a_line(cut)
    assert nights.excess(max_unreadable=0, max_reject_share=0).startswith("1 of 3 files is unread")
    assert nights.run(max_reject_share=0).counts.unreadable == 2
    assert 640 + 15 < nights.scores < 640 + 25


def test_a_cut_file_whose_last_content_counts_on_is_not_read_anew(empty: ScoredArchive) -> None:
    """Its rows count for nothing: neither those that are rejected, nor the others."""
    empty.write("b.jsonl", 20)
    faulty = [trace(id=f"a-bad-{number:03d}", steps=[]) for number in range(25)]
    sound = [trace(id=f"a-{number:03d}") for number in range(2)]
    path = write_jsonl(empty.archive / "a.jsonl", [*faulty, *sound])
    before = empty.run(max_reject_share=1).counts
    path.write_bytes(path.read_bytes()[:-20])
    assert not empty.excess(max_reject_share=1, max_new_rejects=0)
    counts = empty.run(max_reject_share=1, max_new_rejects=0).counts
    assert (counts.cut, counts.rejected, counts.removed) == (1, before.rejected, 0)
    assert ask(empty.warehouse, "SELECT reasons FROM files WHERE source_file LIKE '%/a.jsonl'")[
        "reasons"
    ].to_list() == [["cut_file"]]
    assert empty.scores == 22
    assert empty.run(max_reject_share=1).run_id is None


@pytest.mark.telling
@pytest.mark.parametrize(
    ("before", "removed", "limit", "fails"),
    [
        (12, 10, None, False),  # more than 5%, and not more than ten
        (12, 11, None, True),
        (220, 11, None, False),  # more than ten, and not more than 5%
        (220, 12, None, True),
        (20, 1, "5%", False),
        (20, 2, "5%", True),
        (20, 1, 0, True),
        (20, 19, "100%", False),
    ],
)
def test_more_removed_traces_than_allowed_fail_a_run(
    empty: ScoredArchive, before: int, removed: int, limit: str | int | None, *, fails: bool
) -> None:
    run = Run.begin(empty.config(max_removed=limit), datetime.now(UTC))
    counts = RunCounts(1, before, before - removed, *[0] * 11, {}, [])
    loss = Loss(removed, "a-001", "a.jsonl")
    fault = exceeded_limits(run, counts, LimitInputs(loss=loss, published=before))
    assert (fault is not None) == fails
    assert fault is None or str(fault).startswith(f"{removed} of {before} published trace")


def test_what_a_prune_removes_is_not_counted_and_what_else_goes_is(nights: ScoredArchive) -> None:
    (nights.archive / "z.jsonl").unlink()
    plan = nights.described(prune=True)
    assert (plan.excess, plan.traces_to_remove) == (None, 40)
    nights.write("a.jsonl", 597)
    message = nights.excess(prune=True, max_removed=2)
    assert message.startswith(
        "3 of 640 published traces are to be removed, more than --max-removed 2"
    )
    assert f"(such as one of {nights.archive}/a.jsonl)" in message
    assert nights.run(prune=True, max_removed=3).counts.removed == 43


def test_no_limit_stops_a_forget(nights: ScoredArchive, caplog: pytest.LogCaptureFixture) -> None:
    forget(nights.warehouse, [f"a-{number:03d}" for number in range(50)])
    assert "would fail" not in caplog.text
    assert nights.run().run_id is None
    at_a_line(nights.archive / "a.jsonl")
    assert nights.excess().startswith("300 of 590 published traces")
    forget(nights.warehouse, ["a-300"])
    assert nights.excess().startswith("299 of 589 published traces")


def test_faulty_rows_of_tonight_fail_a_run_however_many_sound_ones_there_were(
    nights: ScoredArchive,
) -> None:
    nights.write("b.jsonl", 0, bad=25)
    message = nights.fails()
    assert message.startswith(
        "25 of 25 newly read rows are rejected, more than --max-reject-share 5% "
        "allows (no_steps 25); no scores are published; see: kp-batch sql 'FROM rejects' "
    )
    assert message.endswith("; to allow it this once: --max-reject-share 100%")
    assert nights.excess() == message
    nights.run(max_reject_share=1)
    nights.write("c.jsonl", 20)
    assert nights.run().counts.rejected == 25


def test_a_few_faulty_rows_of_tonight_fail_no_run(nights: ScoredArchive) -> None:
    for good, bad, fails in ((0, 9, False), (0, 10, True), (190, 10, False), (189, 10, True)):
        nights.write("b.jsonl", good, bad)
        plan = nights.described()
        assert plan.rows_rejected == bad
        assert (plan.excess is not None) == fails, (good, bad)
        assert not plan.excess or "10 of " in plan.excess


def test_the_share_that_is_named_allows_the_run(empty: ScoredArchive) -> None:
    empty.write("a.jsonl", 71, bad=29)
    message = empty.fails()
    assert message.startswith("29 of 100 rows are rejected")
    assert message.endswith("--max-reject-share 29%")
    assert empty.run(max_reject_share="29%").counts.accepted == 71


def test_files_that_went_since_the_last_done_run_fail_a_run_where_they_are_too_many(
    empty: ScoredArchive,
) -> None:
    paths = [empty.write(f"{name}.jsonl", 2) for name in "abcdefgh"]
    empty.run()
    for path in paths[:5]:
        path.unlink()
    message = (
        "5 of 8 files are gone since the last successful run, more than --max-gone 4 allows "
        f"(such as {paths[0]}); no scores are published; to allow it this once: "
    )
    lost = "10 traces of 5 files that are gone, unreadable or excluded"
    to_keep = f"{message}--max-gone 5, and --prune to remove {lost}"
    assert empty.fails(max_gone=4) == to_keep
    assert empty.excess(max_gone="62%")
    pruning = empty.excess(max_gone=4, prune=True)
    assert pruning == f"{message}--prune --max-gone 5, which removes {lost}"
    assert empty.run(max_gone="63%").counts.gone == 5
    assert not empty.excess(max_gone=0)  # it is known
    paths[5].unlink()
    assert empty.excess(max_gone=0).startswith("1 of 3 files is gone")
    empty.write("f.jsonl", 2)
    assert empty.run(max_gone=0).counts.gone == 5


def test_prunable_traces_include_those_of_files_that_went_before(
    empty: ScoredArchive,
) -> None:
    """Files that another one replaces are not counted, nor traces that a readable file has."""
    paths = [empty.write(f"{name}.jsonl", good) for name, good in (("a", 5), ("b", 3), ("c", 2))]
    write_jsonl(empty.archive / "d.jsonl", [trace(id="b-000", objective="Another")])
    empty.run()
    paths[0].unlink()
    assert "--prune to remove 5 traces of 1 file that is gone" in empty.excess(max_gone=0)
    empty.run(max_gone=1)
    assert empty.scores == 10
    paths[1].unlink()
    paths[2].rename(empty.archive / "e.jsonl")
    told = "--max-gone 1, and --prune to remove 7 traces of 2 files that are gone, unreadable or "
    assert told in empty.fails(max_gone=0)
    assert empty.excess(max_gone=0, prune=True).endswith(
        "--prune --max-gone 1, which removes 7 traces of 2 files that are gone, unreadable or "
        "excluded"
    )
    assert empty.run(max_gone=1, prune=True).counts.removed == 7


def test_files_that_went_before_are_pruned_under_a_limit_that_counts_those_that_went_now(
    empty: ScoredArchive,
) -> None:
    paths = [empty.write(f"{name}.jsonl", 2) for name in "abc"]
    empty.run()
    paths[0].unlink()
    empty.run(max_gone=1)
    assert empty.run(max_gone=0, prune=True).counts.removed == 2
    paths[1].unlink()
    assert "1 of 2 files is gone" in empty.excess(max_gone=0, prune=True)


def test_a_file_is_unreadable_once_in_a_limit_until_it_is_so_again(nights: ScoredArchive) -> None:
    path = nights.archive / "b.parquet"
    path.write_bytes(b"PAR1 and no more")
    assert nights.fails(max_unreadable=0) == nights.excess(max_unreadable=0)
    nights.run()
    nights.write("c.jsonl", 1)
    assert nights.run(max_unreadable=0).counts.unreadable == 1
    path.with_name("d.parquet").write_bytes(b"")
    message = nights.excess(max_unreadable=0)
    assert message.startswith("1 of 5 files is unreadable, more than --max-unreadable 0 allows")
    assert f"such as {nights.archive}/d.parquet)" in message
    path.unlink()
    nights.run(max_unreadable=1)
    path.write_bytes(b"")
    assert nights.excess(max_unreadable=0).startswith("1 of 5 files is unreadable")


def test_a_trace_that_an_unreadable_copy_keeps_is_removed_by_a_prune_alone(
    nights: ScoredArchive,
) -> None:
    copy = nights.archive / "a-copy.jsonl"
    copy.write_bytes((nights.archive / "z.jsonl").read_bytes())
    nights.run()
    nights.write("z.jsonl", 0, bad=1)
    copy.write_bytes(b"")
    assert nights.described(max_removed=0).traces_to_remove == 0
    plan = nights.described(prune=True, max_removed=0)
    assert (plan.traces_to_remove, plan.loss, plan.excess) == (40, None, None)


def test_rows_that_were_rolled_back_are_not_newly_read_again(nights: ScoredArchive) -> None:
    first = ask(nights.warehouse, "SELECT latest()").item()
    nights.write("b.jsonl", 0, bad=25)
    assert nights.excess(max_new_rejects=0)
    nights.run(max_reject_share=1)
    rollback(nights.warehouse, first)
    assert nights.run(max_new_rejects=0).counts.rejected == 25


def test_rejected_rows_among_the_newly_read_ones_have_a_limit(nights: ScoredArchive) -> None:
    nights.write("b.jsonl", 47, bad=3)
    for limit in (3, "6%"):
        assert not nights.excess(max_new_rejects=limit)
    for limit in (2, "5%"):
        excess = nights.excess(max_new_rejects=limit)
        assert excess.startswith(
            "3 of 50 newly read rows are rejected, more than --max-new-rejects "
            f"{limit} allows (no_steps 3; such as {nights.archive}/b.jsonl, row 47); no scores are "
        )
        assert excess.endswith("; to allow it this once: --max-new-rejects 3")


@pytest.mark.telling
def test_a_removed_trace_is_always_reported_with_its_file(
    nights: ScoredArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    nights.write("z.jsonl", 39)
    with restored_log():
        show_on_stderr()
        show_only_new_warnings()
        nights.run()
    assert capsys.readouterr().err == (
        "kp-batch: warning: 1 published trace is removed, because no file of the archive contains "
        f"it any more (such as z-039 of {nights.archive}/z.jsonl)\n"
    )


def test_what_is_pruned_forgotten_or_stopped_by_a_limit_is_no_warning_of_removed_traces(
    nights: ScoredArchive, caplog: pytest.LogCaptureFixture
) -> None:
    (nights.archive / "z.jsonl").unlink()
    nights.run(prune=True)
    forget(nights.warehouse, ["a-000"])
    nights.write("a.jsonl", 599)
    assert nights.fails(max_removed=0)
    assert "removed, which" not in caplog.text


def test_a_renamed_file_is_not_gone(
    nights: ScoredArchive, caplog: pytest.LogCaptureFixture
) -> None:
    path = nights.archive / "z.jsonl"
    path.rename(path.with_name("c.jsonl"))
    assert nights.run(max_gone=0).counts.gone == 0
    assert "gone (such as" not in caplog.text


def test_a_file_that_never_could_be_read_is_not_missed(nights: ScoredArchive) -> None:
    path = nights.archive / "b.parquet"
    path.write_bytes(b"PAR1 and no more")
    nights.run()
    path.unlink()
    nights.run(max_gone=0)


@pytest.mark.telling
def test_a_night_that_a_limit_fails_also_reports_failed_audits_and_its_counts(
    nights: ScoredArchive,
) -> None:
    """Unless texts have to be embedded first."""
    audits = {"few": {"sql": "SELECT 1 FROM scores HAVING count(*) < 640"}}
    at_a_line(nights.archive / "a.jsonl")
    message = nights.fails(audits=audits)
    assert message.startswith("300 of 640 published traces are to be removed, more than 5% and ")
    assert "; 1 audit failed: few (1 row); no scores are published; to allow it" in message
    assert message.endswith(": --max-removed 300 --allow-audit few")
    done = "counts->>'$.embedded' AS embedded, counts->>'$.rescored', counts->>'$.removed'"
    last = f"SELECT {done} FROM runs ORDER BY number DESC LIMIT 1"
    assert ask(nights.warehouse, last).row(0) == ("0", "0", "0")
    assert ask(nights.warehouse, "SELECT count(*) FROM runs").item() == 2
    write_jsonl(nights.archive / "new.jsonl", [trace(id="new", objective="Another one")])
    message = nights.fails(audits=audits, embedder="hashing")
    assert "audit" not in message
    allowed = {"max_removed": 300, "audits": audits, "embedder": "hashing"}
    with pytest.raises(AuditError, match="few"):
        nights.run(**allowed)
    assert ask(nights.warehouse, last).row(0)[1:] == ("0", "0")
    assert int(ask(nights.warehouse, last)["embedded"].item()) > 0
    summary = nights.run(**allowed, allow_audit=("few",))
    assert (summary.counts.removed, summary.counts.embedded) == (300, 0)


def test_each_limit_that_fails_a_run_is_named_with_what_allows_it(nights: ScoredArchive) -> None:
    at_a_line(nights.archive / "a.jsonl")
    (nights.archive / "z.jsonl").unlink()
    (nights.archive / "c.parquet").write_bytes(b"PAR1 and no more")
    message = nights.fails(max_gone=0, max_unreadable=0)
    assert [option in message for option in ("--max-gone 0", "--max-unreadable 0")] == [True, True]
    options = (
        "--max-unreadable 1 --max-removed 300 --max-gone 1, and --prune to remove 40 traces of 1 "
        "file that is gone, unreadable or excluded"
    )
    assert message.endswith(f"; to allow it this once: {options}")
    assert nights.run(max_unreadable=1, max_removed=300, max_gone=1).counts.unreadable == 1
