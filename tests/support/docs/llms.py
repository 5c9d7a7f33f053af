"""`llms.txt`: the index of the pages for programs that read them, made from docs/README.md."""

import re
from collections.abc import Iterator

from tests.support import ROOT
from tests.support.docs.pages import DOCS

LLMS = ROOT / "llms.txt"
_LINK = re.compile(r"\]\((?!\w+:)([^)]+)\)")
_SUMMARY = """# kp_batch

> `kp-batch` scores archives of AI agents' reasoning traces (Parquet, JSONL) and publishes tables
> that DuckDB and polars read. It needs Python 3.11 or later. The Python package is `kp_batch`.

Begin with the [front page](README.md). `kp-batch COMMAND --help` has all options."""


def llms_txt() -> str:
    """The text of the file."""
    return "\n".join([_SUMMARY, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    """Each section of the map with its links, as paths from the root; without subheadings."""
    _, *sections = (DOCS / "README.md").read_text("utf-8").split("\n## ")
    for section in sections:
        title, _, text = section.partition("\n")
        items = re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)
        if items:
            yield f"\n## {title}\n"
            yield from (_LINK.sub(_from_root, " ".join(item.split())) for item in items)


def _from_root(link: re.Match[str]) -> str:
    path, sign, place = link[1].partition("#")
    return f"]({(DOCS / path).resolve().relative_to(ROOT)}{sign}{place})"
