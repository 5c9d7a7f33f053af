"""A bucket that does not answer ends each command within a bound, with its name."""

import time
from pathlib import Path

import pytest

from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.buckets import silent_server
from tests.support.processes.commands import invoke

pytestmark = pytest.mark.process
WORDS = "there was no answer for 1 s; look at the address and the network"


@pytest.mark.telling
@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
def test_a_bucket_that_does_not_answer_is_named(
    bucket: str, tmp_path: Path, *, is_known: bool
) -> None:
    archive = write_jsonl(tmp_path / "a.jsonl", [trace(id="a")])
    words = [archive, "--warehouse", bucket, "--embedder", "none"]
    if is_known:
        assert invoke("run", *words, "--no-prefect").returncode == 0
    for command in (
        ["run", *words, "--no-prefect"],
        ["plan", *words],
        ["runs", "--warehouse", bucket],
        ["sql", "FROM scores", "--warehouse", bucket],
        ["rollback", "previous", "--warehouse", bucket],
    ):
        began = time.monotonic()
        with silent_server() as taken:
            done = invoke(*command)
        assert len(taken) <= 2, command  # of a run, where it tells how it ended, too
        assert time.monotonic() - began < 10, command
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert WORDS in last
        assert bucket in last
