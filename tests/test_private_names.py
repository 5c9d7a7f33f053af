"""What is private to a module is used in it, and nowhere else; pyrefly looks at neither."""

import re

import pytest

from tests.support import ROOT

DEFINED = re.compile(r"^(?:(?:async )?def |class )?(_[a-zA-Z]\w*)\b(?!\.)", re.MULTILINE)
IMPORTED = re.compile(r"^\s*from \S+ import (\([^)]*\)|.*)", re.MULTILINE)
PRIVATE = re.compile(r"\b_[a-zA-Z]\w*")
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for folder in ("kp_batch", "flows")
    for path in sorted(ROOT.glob(f"{folder}/**/*.py"))
}


def unused(source: str) -> list[str]:
    words = re.findall(r"\w+", source)
    return [name for name in DEFINED.findall(source) if words.count(name) == 1]


def imported(source: str) -> list[str]:
    return [name for names in IMPORTED.findall(source) for name in PRIVATE.findall(names)]


def test_private_names_are_used_where_they_are_defined() -> None:
    assert [(path, names) for path, text in SOURCES.items() if (names := unused(text))] == []


def test_no_private_name_is_imported() -> None:
    assert [(path, names) for path, text in SOURCES.items() if (names := imported(text))] == []


@pytest.mark.parametrize(
    "source",
    ["def _f() -> None:\n    pass\n", "class _F:\n    pass\n", "_F = 1\n", "_F: int = 1\n"],
)
def test_unused_names_are_found(source: str) -> None:
    assert len(unused(source)) == 1
    assert unused(source + "print(_f, _F)\n") == []


def test_imported_names_are_found() -> None:
    assert imported("from a import b, _c\n    from d import (\n    _e,\n)\n") == ["_c", "_e"]
