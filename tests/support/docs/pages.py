"""The documentation as the tests read it: its pages, with their blocks, headings and links."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support import ROOT

README = ROOT / "README.md"
DOCS = ROOT / "docs"
CONTRIBUTING, SECURITY = ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"
OF_TESTS = ROOT / "tests" / "README.md"
PAGES = [
    README,
    CONTRIBUTING,
    SECURITY,
    OF_TESTS,
    *sorted(DOCS.rglob("*.md")),
]
# What starts a server, or asks one, and what installs, has a test of its own.
_TESTED_ELSEWHERE = (
    *("make ", "pip ", "from dagster", "prefect server", "--ray", "ray start", "s3://", "psql "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and text, and the output that is shown right below it."""

    language: str
    text: str
    shown: str = ""

    @property
    def is_run(self) -> bool:
        """Whether the test of its page runs it."""
        return self.language in {"sh", "python"} and not any(
            each in self.text for each in _TESTED_ELSEWHERE
        )


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in their order; one without a language is shown output."""
    tokens = _tokens(page)
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "fence" and token.info:
            shown = after if after and after.type == "fence" and not after.info else None
            yield Block(token.info, token.content, shown.content if shown else "")


def loose_outputs(page: Path) -> list[str]:
    """Blocks of output that stand below no command."""
    tokens = _tokens(page)
    return [
        token.content
        for before, token in zip([None, *tokens], tokens, strict=False)
        if token.type == "fence" and not token.info
        if before is None or before.type != "fence" or not before.info
    ]


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    pairs = itertools.pairwise(_tokens(page))
    return {anchor(after.content) for before, after in pairs if before.type == "heading_open"}


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links and pictures."""
    for token in _tokens(page):
        for each in token.children or ():
            if target := each.attrGet("href") or each.attrGet("src"):
                yield str(target)


def rows(page: Path, heading: str | None = None) -> Iterator[list[str]]:
    """The cells of a page's tables, row by row, their heads left out.

    Args:
        page: the page.
        heading: of the section, down to the next heading; None for all of the page.
    """
    section = None if heading else ""
    tokens = _tokens(page)
    cells: list[str] = []
    for token, after in itertools.pairwise(tokens):
        if token.type == "heading_open":
            section = after.content
        elif token.type == "td_open":
            cells.append(after.content)
        elif token.type == "tr_close" and cells:
            if heading is None or section == heading:
                yield cells
            cells = []


def explained(page: Path) -> list[str]:
    """What the items of a page's lists explain: the code that they begin with, before a colon."""
    pairs = itertools.pairwise(itertools.pairwise(_tokens(page)))
    items = [after.content for (before, _), (_, after) in pairs if before.type == "list_item_open"]
    heads = (re.match(r"((?:`[^`]+`(?:,\s)?)+):\s", item) for item in items)
    return [message for head in heads if head for message in re.findall(r"`([^`]+)`", head[1])]
