"""The picture of the page on labels shows what its commands print."""

import subprocess
import sys
from pathlib import Path

import pytest

from kp_batch.pipeline.rescore import rescore_archive
from tests.support import ROOT
from tests.support.docs.commands import words
from tests.support.docs.pages import DOCS, blocks, links
from tests.support.make.runs import config
from tests.support.processes.commands import invoke

PAGE = DOCS / "how-to" / "weights-from-labels.md"


@pytest.mark.slow
def test_the_picture_of_the_labels_is_that_of_the_page(tmp_path: Path) -> None:
    rescore_archive(config(tmp_path, ROOT / "data" / "sample", embedder="hashing"))
    warehouse, labels, drawn = (tmp_path / name for name in ("warehouse", "labels.csv", "a.svg"))
    [asked] = [
        line
        for block in blocks(PAGE)
        for line in block.text.splitlines()
        if line.startswith("kp-batch sql")
    ]
    query = asked.split('"')[1]
    labels.write_text(invoke("sql", query, "--format", "csv", "--warehouse", warehouse).stdout)
    module = [sys.executable, "-m", "tests.support.docs.label_order"]
    subprocess.run([*module, warehouse, labels, drawn], cwd=ROOT, check=True)
    [picture] = [link for link in links(PAGE) if link.endswith(".svg")]
    assert words(drawn) == words(PAGE.parent / picture)
    assert len(words(drawn)) > 10
