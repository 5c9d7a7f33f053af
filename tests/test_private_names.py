"""What is private to a module is used in it; no linter of ours looks at that."""

import re

import pytest

from tests.support import ROOT

DEFINED = re.compile(r"^(?:(?:async )?def |class )?(_[a-zA-Z]\w*)\b(?!\.)", re.MULTILINE)


def unused(source: str) -> list[str]:
    words = re.findall(r"\w+", source)
    return [name for name in DEFINED.findall(source) if words.count(name) == 1]


def test_private_names_are_used_where_they_are_defined() -> None:
    sources = ROOT.glob("kp_batch/**/*.py")
    names = {str(path): unused(path.read_text("utf-8")) for path in sources}
    assert len(names) > 100
    assert {path: names for path, names in names.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    ["def _f() -> None:\n    pass\n", "class _F:\n    pass\n", "_F = 1\n", "_F: int = 1\n"],
)
def test_a_name_that_nothing_uses_is_reported(source: str) -> None:
    assert len(unused(source)) == 1
    assert unused(source + "print(_f, _F)\n") == []
