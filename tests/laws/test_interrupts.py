"""Ctrl-C ends a run in any step, leaves nothing behind, and the process goes on."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.tiny_traces import Traces, write_traces

LAW_S = 5.0


def interrupt_all(folder: Path, settings: dict[str, Any], moments: int) -> list[dict[str, Any]]:
    """See `laws.interrupts`; what it printed of each interrupt."""
    temporary = folder / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "tests.laws.interrupts"]
    done = subprocess.run(
        [*command, str(folder), json.dumps(settings), str(moments)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [*map(json.loads, done.stdout.splitlines())]


@pytest.mark.process
def test_a_run_is_interrupted_in_each_step_and_the_next_one_does_its_work(tmp_path: Path) -> None:
    write_traces(tmp_path / "archive", Traces(6_000, days=6, files=3))
    settings = {"embedder": "hashing", "cache_size": 1_000, "report": True}
    _, *found, same = interrupt_all(tmp_path, settings, 2)
    assert same == {"same": True}
    ended = {each["step"] for each in found if each["status"] == "stopped"}
    assert ended >= {"read", "plan", "replay"}  # the others may be over too soon
    assert max(each["seconds"] or 0 for each in found) < LAW_S  # all work is small between looks


@pytest.mark.torture
@pytest.mark.model
@pytest.mark.process
def test_a_run_that_embeds_by_the_real_model_is_interrupted(tmp_path: Path) -> None:
    words, draw = [f"w{number}ord" for number in range(5_000)], random.Random(1)
    traces = (
        trace(id=f"kp:trace:{number}", objective=" ".join(draw.choices(words, k=500)))
        for number in range(40)
    )
    write_jsonl(tmp_path / "archive" / "a.jsonl", traces)
    _, *found, same = interrupt_all(tmp_path, {"embedder": "minilm"}, 0)
    assert same == {"same": True}
    assert "embed" in {each["step"] for each in found if each["status"] == "stopped"}
