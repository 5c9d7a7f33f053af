"""Results as notebooks show them: HTML that loads nothing and runs nothing.

Colours are the notebook's, light or dark. Texts of traces are untrusted: they are escaped, and
control characters are written out, as in a terminal.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any, cast

from kp_batch.rendering import Facts, Head, Part, SideBySide, Spans, Table, as_text
from kp_batch.text import printable, printable_lines, some_of

_ROWS = 50  # shown of a table, and as many more of the marked ones
_FACTS = 200  # likewise
_ITEMS = 5  # shown of a list in a fact
_NUMBER = re.compile(r"(about )?[-+]?[0-9][0-9,]*(\.[0-9]+)?(e[-+]?[0-9]+)?%?( \([0-9.]+%\))?")
_LONG = 40  # characters; a longer cell is broken into lines
_RULES = """
&{font-size:13px;line-height:1.45;text-align:left;max-width:100%;overflow-wrap:anywhere}
& section{margin:0 0 .9em}
& .head{font-weight:600}
& summary{cursor:pointer}
& .more,& thead th,& .facts th,& .note{opacity:.75}
& .wide{overflow-x:auto;margin:.2em 0 .4em}
& table{border-collapse:collapse;border:0;margin:0;font-size:inherit;table-layout:auto}
& tr,& thead{background:none;border:0}
& th,& td{text-align:left;vertical-align:top;padding:.15em .8em .15em 0;border:0;\
max-width:none;font-weight:400;white-space:nowrap}
& thead th{border-bottom:1px solid color-mix(in srgb,currentColor 40%,transparent)}
& .number{text-align:right;font-variant-numeric:tabular-nums}
& .facts td,& .long{white-space:normal;min-width:15em}
& .facts tr{background:none}
& .marked{background:color-mix(in srgb,currentColor 14%,transparent)}
& .note td{padding-left:1em;white-space:normal}
& .bar{min-width:8em}
& .bar i{display:block;height:.6em;margin-top:.4em;min-width:1px;\
background:currentColor;opacity:.45}
& .pair{display:flex;flex-wrap:wrap;gap:.5em 1.5em;margin:.3em 0 .7em}
& .pair div{flex:1 1 17em;min-width:0;white-space:pre-wrap;padding-left:.7em;\
border-left:2px solid color-mix(in srgb,currentColor 25%,transparent)}
& mark{background:color-mix(in srgb,currentColor 18%,transparent);color:inherit}
"""
# The class twice, to outweigh the notebooks' own style of tables.
_STYLE = _RULES.replace("&", ".kp-batch.kp-batch")


class Displayed:
    """A result that notebooks show by its parts, or by its fields if it has none.

    Printed, it looks as on the command line.
    """

    def __str__(self) -> str:
        return printable_lines(as_text(self._parts()))

    def _parts(self) -> Iterable[Part]:
        return fields_of(self)

    def _repr_html_(self) -> str:
        """Return what Jupyter and marimo show."""
        return card(self._parts())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return what Jupyter keeps and IPython shows; all fields may be too large for it."""
        return {"text/html": self._repr_html_(), "text/plain": str(self)}

    def _repr_pretty_(self, printer: Any, _: object) -> None:
        """Print the result within a tuple, for which IPython does not call the other method."""
        printer.text(str(self))


def card(parts: Iterable[Part]) -> str:
    """Return the HTML of a result, with a section for each of its heads."""
    sections = "".join(f"<section>{section}</section>" for section in _sections(parts))
    return f'<div class="kp-batch"><style>{_STYLE}</style>{sections}</div>'


def fields_of(result: object) -> Iterator[Part]:
    """Yield the fields of a dataclass by name, as parts."""
    if not is_dataclass(result):
        raise TypeError(f"a dataclass, got {result!r}")
    yield Head(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(result).__name__).lower())
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    yield Facts([(name.replace("_", " "), _in_words(value)) for name, value in values.items()])


def _in_words(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Mapping):
        named = cast("Mapping[Any, Any]", value).items()
        words = {str(name): _in_words(each) for name, each in named}
        return _some([f"{name} {each}" for name, each in words.items() if each])
    if isinstance(value, Sequence):
        return _some([*map(_in_words, cast("Sequence[Any]", value))])
    if is_dataclass(value):
        return _in_words({field.name: getattr(value, field.name) for field in fields(value)})
    return _number(value)


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _some(words: Sequence[str]) -> str:
    return some_of(words[:_ITEMS], len(words))


def escaped(text: str) -> str:
    """Return a text as HTML shows it, on one line."""
    return escape(printable(text))


def _sections(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the HTML from each head to the next; consecutive heads share a section."""
    section: list[str] = []
    before: Part = ""
    for part in parts:
        if isinstance(part, Head) and not isinstance(before, Head) and section:
            yield "".join(section)
            section = []
        section.append(_html(part))
        before = part
    yield "".join(section)


def _html(part: Part) -> str:
    if isinstance(part, Facts):
        return _facts(part)
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, SideBySide):
        return _side_by_side(part)
    kind = "head" if isinstance(part, Head) else "line more" if part[:1] == " " else "line"
    return f'<div class="{kind}">{escaped(part.strip())}</div>' if part.strip() else ""


def _side_by_side(part: SideBySide) -> str:
    texts = f'<div class="pair">{_spans(part.left)}{_spans(part.right)}</div>'
    is_open = " open" if part.is_first else ""
    return f"<details{is_open}><summary>{escaped(part.about)}</summary>{texts}</details>"


def _facts(part: Facts) -> str:
    rows = [
        f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(text)}</td></tr>'
        for name, text in part.facts[:_FACTS]
    ]
    more = _more(len(part.facts) - len(rows))
    table = f'<table class="facts"><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="wide">{table}</div>{more}'


def _table(part: Table) -> str:
    if not part.rows:
        return ""
    headings = [*part.rows[0]]
    numbers = {name for name in headings if _is_of_numbers([row[name] for row in part.rows])}
    cells = "".join(_cell("th", name, is_number=name in numbers) for name in headings)
    extra = "<th></th>" * (bool(part.bars) + bool(part.remarks))
    shown = sorted({*range(len(part.rows))[:_ROWS], *sorted(part.marked)[:_ROWS]})
    rows = "".join(_row(part, number, numbers) for number in shown)
    table = f"<table><thead><tr>{cells}{extra}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{table}</div>{_more(len(part.rows) - len(shown))}'


def _row(part: Table, number: int, numbers: set[str]) -> str:
    row = part.rows[number]
    cells = [
        _cell("td" if place else 'th scope="row"', text, is_number=name in numbers)
        for place, (name, text) in enumerate(row.items())
    ]
    if part.bars:
        begin, end = sorted(part.bars[number])
        style = f"margin-left:{begin:.2%};width:{end - begin:.2%}"
        cells.append(f'<td class="bar"><i style="{style}"></i></td>')
    if part.remarks:
        cells.append(_cell("td", part.remarks[number]))
    kind = ' class="marked"' if number in part.marked else ""
    html = f"<tr{kind}>{''.join(cells)}</tr>"
    if part.notes and part.notes[number]:
        note = escaped(part.notes[number])
        html += f'<tr class="note"><td colspan="{len(cells)}">{note}</td></tr>'
    return html


def _is_of_numbers(texts: Sequence[str]) -> bool:
    """Whether a column has only numbers, which are aligned to the right."""
    return any(texts) and all(_NUMBER.fullmatch(text) for text in texts if text)


def _cell(tag: str, text: str, *, is_number: bool = False) -> str:
    kind = ' class="number"' if is_number else ' class="long"' if len(text) > _LONG else ""
    return f"<{tag}{kind}>{escaped(text)}</{tag[:2]}>"


def _more(count: int) -> str:
    return f'<div class="line more">{count:,} more</div>' if count > 0 else ""


def _spans(spans: Spans) -> str:
    texts = ((escape(printable_lines(span.text)), span.shared) for span in spans)
    marked = (f"<mark>{text}</mark>" if shared else text for text, shared in texts)
    return f"<div>{''.join(marked)}</div>"
