"""What a run says of itself at its end."""

from pathlib import Path

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.pipeline.summary import as_text
from kp_batch.text import bar_line
from tests.archives import trace, write_jsonl


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ([0] * 10, " " * 10),
        ([8, 4, 2, 1, 0], "█▄▂▁ "),
        ([1000, 1, 0], "█▁ "),
        ([3], "█"),
        ([], ""),
    ],
)
def test_a_bar_line_is_as_high_as_the_counts_and_hides_none(counts: list[int], line: str) -> None:
    assert bar_line(counts) == line


def test_each_domain_has_its_bar_line_and_hostile_names_are_written_out(tmp_path: Path) -> None:
    hostile = "\x1b[31mred\n# <script>"
    traces = [trace(id=str(n), task_domain=d) for n, d in enumerate(["code", "code", hostile])]
    write_jsonl(tmp_path / "a.jsonl", traces)
    summary = rescore_archive(
        RescoreConfig(
            archive=(str(tmp_path / "a.jsonl"),), warehouse=tmp_path / "wh", embedder="none"
        )
    )
    assert [sum(row["bins"]) for row in summary["scores"]] == [1, 2]
    text = as_text(summary)
    assert "\\x1b[31mred\\n# <script>" in text
    assert "\x1b" not in text
    [code] = [line for line in text.splitlines() if line.split()[:1] == ["code"]]
    assert code.count("█") == 1
