"""What fails a run that would lose, reject or miss too much, until it is allowed or healed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kp_batch.errors import ArchiveError
from kp_batch.operations.forget import forget
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.summary import Summary
from kp_batch.planning.explain_plan import PlanDescription
from tests.support.archives import trace, write_jsonl
from tests.support.nights import Night
from tests.support.queries import ask
from tests.support.runs import config

pytestmark = pytest.mark.slow


class Nights:
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

    def run(self, **settings: Any) -> Summary:
        return rescore_archive(config(self.folder, self.archive, embedder="none", **settings))

    def fails(self, **settings: Any) -> str:
        """Run, which fails; returns why."""
        with pytest.raises(ArchiveError) as caught:
            self.run(**settings)
        return str(caught.value)

    def described(self, **settings: Any) -> PlanDescription:
        night = Night(self.folder)
        places = {"warehouse": self.warehouse, "embedder": "none", "cache_size": 1_000}
        return night.described(**{**places, **settings})

    @property
    def scores(self) -> int:
        return ask(self.warehouse, "SELECT count(*) FROM scores").item()


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def at_a_line(path: Path) -> None:
    """Cut a file in half, at a line's end."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))


def in_a_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:30])


@pytest.mark.parametrize("cut", [at_a_line, in_a_line])
def test_a_cut_file_fails_every_night_until_its_loss_is_allowed(
    nights: Nights, cut: Callable[[Path], None]
) -> None:
    path = nights.write("a.jsonl", 40)
    nights.run()
    cut(path)
    fault = (
        "20 of 40 published traces are to be removed, more than 5% and more than 10, "
        f"the default of --max-removed (such as a-020 of {path}); no scores are published; "
        "to allow it this once: --max-removed 20"
    )
    assert nights.described().excess == fault
    assert [nights.fails(), nights.fails(), nights.scores] == [fault, fault, 40]
    assert nights.run(max_removed=20).counts.removed == 20
    assert nights.run().run_id is None


def test_a_cut_file_that_is_whole_again_fails_no_night(nights: Nights) -> None:
    path = nights.write("a.jsonl", 40)
    nights.run()
    at_a_line(path)
    nights.fails()
    nights.write("a.jsonl", 40)
    assert nights.run().counts.removed == 0
    assert nights.scores == 40


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
    nights: Nights, before: int, removed: int, limit: str | int | None, *, fails: bool
) -> None:
    nights.write("a.jsonl", before)
    nights.run()
    nights.write("a.jsonl", before - removed)
    settings = {} if limit is None else {"max_removed": limit}
    if fails:
        assert f"{removed} of {before} published trace" in nights.fails(**settings)
    else:
        assert nights.run(**settings).counts.removed == removed


def test_what_a_prune_removes_is_not_counted_and_what_else_goes_is(nights: Nights) -> None:
    nights.write("a.jsonl", 40)
    gone = nights.write("b.jsonl", 20)
    nights.write("c.jsonl", 5)
    nights.run()
    gone.unlink()
    assert nights.run(prune=True).counts.removed == 20
    nights.write("b.jsonl", 20)
    nights.run()
    gone.unlink()
    nights.write("c.jsonl", 2)
    message = nights.fails(prune=True, max_removed=2)
    assert message.startswith(
        "3 of 65 published traces are to be removed, more than --max-removed 2"
    )
    assert f"(such as c-002 of {nights.archive}/c.jsonl)" in message
    assert nights.run(prune=True, max_removed=3).counts.removed == 23


def test_no_limit_stops_a_forget(nights: Nights, caplog: pytest.LogCaptureFixture) -> None:
    path = nights.write("a.jsonl", 60)
    nights.run()
    caplog.clear()
    forget(nights.warehouse, [f"a-{number:03d}" for number in range(25)])
    assert "would fail" not in caplog.text
    assert nights.run().run_id is None
    at_a_line(path)
    assert nights.fails().startswith("30 of 35 published traces")
    forget(nights.warehouse, ["a-030"])
    assert nights.fails().startswith("29 of 34 published traces")


def test_faulty_rows_of_tonight_fail_a_run_however_many_sound_ones_there_were(
    nights: Nights,
) -> None:
    nights.write("a.jsonl", 600)
    nights.run()
    nights.write("b.jsonl", 0, bad=25)
    message = nights.fails()
    assert message.startswith(
        "of what is read anew, 25 of 25 rows are rejected, more than --max-reject-share 0.05 "
        "allows (no_steps 25); no scores are published; see: kp-batch sql 'FROM rejects' "
    )
    assert message.endswith("; to allow it this once: --max-reject-share 1")
    assert nights.fails() == message
    nights.run(max_reject_share=1)
    nights.write("c.jsonl", 20)
    assert nights.run().counts.rejected == 25


@pytest.mark.parametrize(
    ("good", "bad", "fails"), [(0, 9, False), (0, 10, True), (190, 10, False), (189, 10, True)]
)
def test_a_few_faulty_rows_of_tonight_fail_no_run(
    nights: Nights, good: int, bad: int, *, fails: bool
) -> None:
    nights.write("a.jsonl", 600)
    nights.run()
    nights.write("b.jsonl", good, bad)
    if fails:
        assert "of what is read anew, 10 of " in nights.fails()
    else:
        assert nights.run().counts.rejected == bad


def test_the_share_that_is_named_allows_the_run(nights: Nights) -> None:
    nights.write("a.jsonl", 71, bad=29)
    message = nights.fails()
    assert message.startswith("29 of 100 rows are rejected")
    assert message.endswith("--max-reject-share 0.29")
    assert nights.run(max_reject_share=0.29).counts.accepted == 71


def test_files_that_went_since_the_last_done_run_fail_a_run_where_they_are_too_many(
    nights: Nights,
) -> None:
    paths = [nights.write(f"{name}.jsonl", 2) for name in "abcdefgh"]
    nights.run()
    for path in paths[:5]:
        path.unlink()
    message = nights.fails(max_gone=4)
    assert message == (
        "5 of 8 files are gone since the last run that is done, more than --max-gone 4 allows "
        f"(such as {paths[0]}); no scores are published; to allow it this once: --max-gone 5"
    )
    assert nights.described(max_gone="62%").excess
    assert nights.fails(max_gone=4, prune=True) == message
    assert nights.run(max_gone="63%").counts.gone == 5
    assert nights.run(max_gone=0).run_id is None  # it is known
    paths[5].unlink()
    assert nights.fails(max_gone=0).startswith("1 of 3 files is gone")
    nights.write("f.jsonl", 2)
    assert nights.run(max_gone=0).counts.gone == 5


def test_a_renamed_file_is_not_gone(nights: Nights, caplog: pytest.LogCaptureFixture) -> None:
    path = nights.write("b.jsonl", 2)
    nights.run()
    path.rename(path.with_name("c.jsonl"))
    caplog.clear()
    assert nights.run(max_gone=0).counts.gone == 0
    assert caplog.messages == [
        message for message in caplog.messages if "gone (such as" not in message
    ]


def test_a_file_that_never_could_be_read_is_not_missed(nights: Nights) -> None:
    nights.write("a.jsonl", 2)
    (nights.archive / "b.parquet").write_bytes(b"PAR1 and no more")
    nights.run()
    (nights.archive / "b.parquet").unlink()
    nights.run(max_gone=0)


def test_each_limit_that_fails_a_run_is_named_with_what_allows_it(nights: Nights) -> None:
    cut = nights.write("a.jsonl", 40)
    gone = nights.write("b.jsonl", 1)
    nights.run()
    at_a_line(cut)
    gone.unlink()
    (nights.archive / "c.parquet").write_bytes(b"PAR1 and no more")
    message = nights.fails(max_gone=0, max_unreadable=0)
    assert [option in message for option in ("--max-gone 0", "--max-unreadable 0")] == [True, True]
    options = "--max-unreadable 1 --max-removed 20 --max-gone 1"
    assert message.endswith(f"; to allow it this once: {options}")
    assert nights.run(max_unreadable=1, max_removed=20, max_gone=1).counts.unreadable == 1
