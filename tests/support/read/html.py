"""What a page or a part of one shows, as its HTML has it: its tables, its words, and its tags."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

Attributes = dict[str, str | None]
_VOID = {"meta", "br"}


@dataclass
class Table:
    """A table: the cells of its head, and those of each row with the classes of the row."""

    head: list[str] = field(default_factory=list[str])
    rows: list[list[str]] = field(default_factory=list[list[str]])
    kinds: list[str] = field(default_factory=list[str])


class Shown(HTMLParser):
    """The content of some HTML, whose tags are all closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[Table] = []
        self.tags: list[tuple[str, Attributes]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def words(self) -> list[str]:
        """All words that are shown, in their order."""
        return " ".join(self.texts).split()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append(Table())
        elif tag == "tr" and "thead" not in self._open:
            self.tables[-1].rows.append([])
            self.tables[-1].kinds.append(attributes.get("class") or "")
        elif tag in {"th", "td"}:
            self._row.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.texts.append(data)
        if {"th", "td"} & {*self._open}:
            self._row[-1] += data

    @property
    def _row(self) -> list[str]:
        return self.tables[-1].head if "thead" in self._open else self.tables[-1].rows[-1]


def is_harmless(html: str) -> bool:
    """Whether HTML runs nothing and loads nothing: it has no tag or attribute but those of ours."""
    allowed = {
        *("div", "style", "section", "table", "thead", "tbody", "tr", "th", "td"),
        *("i", "mark", "details", "summary"),
    }
    tags = Shown(html).tags
    return (
        {tag for tag, _ in tags} <= allowed
        and {name for _, attributes in tags for name in attributes}
        <= {"class", "style", "scope", "colspan", "open"}
        and "url(" not in html
        and "@import" not in html
    )
