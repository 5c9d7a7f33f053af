"""Results in notebooks: what a terminal shows, and nothing that a text of a trace may do."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.html import Displayed, card, fields_of
from kp_batch.rendering import (
    Facts,
    Head,
    Long,
    Part,
    Row,
    SideBySide,
    Table,
    TextSpan,
    as_lines,
    as_text,
)
from kp_batch.text import printable
from tests.support.read.html import Shown, is_harmless

HOSTILE = [
    "<script>alert(1)</script>",
    "</style></td></table><img src=x onerror=alert(1)>",
    "\"quoted\" 'twice' & &amp; &#60;b&#62;",
    "\x1b[31mred\x1b[0m\x00\x7f",
    "\u202egnp.exe\u200f\u2066 \ud800",
    "two\nlines\tand more",
]

words = st.text("ab<&'\"«1.9%+", min_size=1, max_size=6)
lines = st.lists(words, min_size=1, max_size=4).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    headings = draw(st.lists(words, min_size=1, max_size=3, unique=True))
    number = draw(st.integers(1, 4))
    rows: list[Row] = [{name: draw(words) for name in headings} for _ in range(number)]
    of_rows = st.lists(lines, min_size=number, max_size=number)
    remarks, notes = (draw(st.one_of(st.just(list[str]()), of_rows)) for _ in range(2))
    return Table(rows, marked={0}, remarks=remarks, notes=notes)


parts = st.one_of(
    lines,
    lines.map(Head),
    lines.map("  {}".format),
    st.just(""),
    st.lists(st.tuples(words, lines), min_size=1, max_size=3).map(Facts),
    tables(),
)


@given(st.lists(parts, max_size=6))
def test_a_notebook_shows_the_words_of_a_terminal_in_their_order(shown: list[Part]) -> None:
    html = card(shown)
    assert is_harmless(html)
    assert Shown(html).words == as_text(shown).split()


def test_a_terminal_cuts_a_long_text_at_the_end_of_its_line_but_a_notebook_breaks_it() -> None:
    text = "12345678 " * 20
    shown = [Facts([("step", Long(text)), ("file", text)], width=8)]
    assert [*as_lines(shown)] == [f"  step     {text[:108]}…", f"  file     {text}"]
    assert Shown(card(shown)).tables[0].rows == [["step", text], ["file", text]]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_is_shown_as_in_a_terminal_everywhere(text: str) -> None:
    everywhere: list[Part] = [
        Head(text),
        text,
        f"  {text}",
        Facts([(text, text)]),
        Table([{text: text, "b": text}], marked={0}, remarks=[text], notes=[text]),
        SideBySide(
            text,
            is_first=True,
            left=[TextSpan(text, shared=True)],
            right=[TextSpan(text, shared=False)],
        ),
    ]
    html = card(everywhere)
    assert is_harmless(html)
    shown = Shown(html)
    assert not [sign for each in shown.texts for sign in each if not sign.isprintable()] or (
        "\n" in text
    )
    facts, table = shown.tables
    assert facts.rows == [[printable(text)] * 2]
    assert table.head == [printable(text), "b", ""]
    assert table.rows == [[printable(text)] * 3, [printable(text)]]
    beside = shown.texts[-2:]
    assert ["".join(each.splitlines()) for each in beside] == [
        printable(text.replace("\n", ""))
    ] * 2


def test_numbers_are_aligned_right_and_all_else_left() -> None:
    row = {
        "name": "7 days", "count": "1,234", "signed": "+0.0100", "share": "12 (3.4%)",
        "small": "1e-05", "about": "about 12", "none": "", "day": "2026-01-31", "age": "2.0 h",
    }  # fmt: skip
    blank = dict.fromkeys(row, "")
    html = card([Table([row, blank])])
    [kinds] = [
        [attributes.get("class") for tag, attributes in Shown(html).tags if tag == "th"][: len(row)]
    ]
    numbers = {name for name, kind in zip(row, kinds, strict=True) if kind == "number"}
    assert numbers == {"count", "signed", "share", "small", "about"}


def test_what_is_long_is_cut_and_says_by_how_much() -> None:
    shown = Shown(card([Table([{"n": str(n)} for n in range(3_000)])]))
    assert [row[0] for row in shown.tables[0].rows] == [str(n) for n in range(50)]
    assert shown.texts[-1] == "2,950 more"
    rows = [{"n": str(n)} for n in range(3_000)]
    shown = Shown(card([Table(rows, marked=[7, 2_000])]))
    assert [row[0] for row in shown.tables[0].rows] == [*map(str, range(50)), "2000"]
    assert (shown.tables[0].kinds[7], shown.tables[0].kinds[50]) == ("marked", "marked")
    assert shown.texts[-1] == "2,949 more"
    shown = Shown(card([Table(rows, marked=range(100, 3_000))]))
    assert (len(shown.tables[0].rows), shown.texts[-1]) == (100, "2,900 more")
    facts = Shown(card([Facts([(str(n), "") for n in range(1_000)])]))
    assert (len(facts.tables[0].rows), facts.texts[-1]) == (200, "800 more")
    assert "more" not in Shown(card([Table([{"n": "1"}] * 50)])).words


def test_a_bar_reaches_from_its_beginning_to_its_end_and_rows_are_highlighted() -> None:
    rows = [{"adds": "0.5"}, {"adds": "-0.25"}]
    shown = Shown(card([Table(rows, marked=[1], bars=[(0.0, 0.5), (0.5, 0.25)])]))
    bars = [attributes["style"] for tag, attributes in shown.tags if tag == "i"]
    assert bars == ["margin-left:0.00%;width:50.00%", "margin-left:25.00%;width:25.00%"]
    assert shown.tables[0].kinds == ["", "marked"]


def test_heads_that_follow_each_other_begin_one_section() -> None:
    shown = Shown(card([Head("from a"), Head("to b"), "line", Head("next"), Facts([("a", "b")])]))
    assert [tag for tag, _ in shown.tags].count("section") == 2


def test_a_table_without_rows_is_nothing_in_both() -> None:
    assert [*as_lines([Table([])])] == []
    assert Shown(card([Table([])])).tables == []


def test_texts_are_side_by_side_and_those_of_the_first_are_open() -> None:
    first, second = (
        SideBySide(
            about,
            is_first=about == "one",
            left=[TextSpan("both ", shared=True), TextSpan("left\nhere", shared=False)],
            right=[TextSpan("both", shared=True)],
        )
        for about in ("one", "two")
    )
    shown = Shown(card([first, second]))
    opened = [attributes for tag, attributes in shown.tags if tag == "details"]
    assert opened == [{"open": None}, {}]
    assert [tag for tag, _ in shown.tags].count("mark") == 4
    assert "left\nhere" in shown.texts
    assert [*as_lines([first])] == ["one", f"    {'«both »left here':54} | «both»"]


@dataclass(frozen=True)
class _Inner:
    words: str = "in"
    nothing: str | None = None


@dataclass(frozen=True)
class LongName(Displayed):
    run_id: str | None = None
    rows_read: int = 1_234_567
    share: float = 0.12345678
    is_new: bool = True
    names: tuple[str, ...] = ("<b>", "b", "c", "d", "e", "f", "g")
    by_code: dict[str, int] = field(default_factory=lambda: {"a": 1_000, "b": 2})
    inner: _Inner = field(default_factory=_Inner)


def test_a_result_of_no_form_of_its_own_shows_its_fields() -> None:
    shown = Shown(LongName()._repr_html_())
    assert shown.texts[0] == "long name"
    assert dict(shown.tables[0].rows) == {  # type: ignore[arg-type]
        "run id": "",
        "rows read": "1,234,567",
        "share": "0.123457",
        "is new": "yes",
        "names": "<b>, b, c, d, e, 2 more",
        "by code": "a 1,000, b 2",
        "inner": "words in",
    }
    with pytest.raises(TypeError, match="a dataclass, got 'text'"):
        [*fields_of("text")]
