"""Classes have names of their own; private names are used, and no test replaces them.

No linter looks at that.
"""

import ast
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import ROOT


def test_each_class_has_a_name_of_its_own(modules: Mapping[Path, ast.Module]) -> None:
    nodes = (node for tree in modules.values() for node in ast.walk(tree))
    counts = Counter(node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef))
    assert len(counts) > 200
    assert [name for name, count in counts.items() if count > 1] == []


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


PATCHES = ("setattr", "delattr", "object", "multiple", "patch")


def replaced(source: str) -> list[str]:
    """The private names that are given to `monkeypatch.setattr` or `mock.patch`."""
    calls = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call))
    patches = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] in PATCHES]
    names = [each.value for call in patches for each in call.args if isinstance(each, ast.Constant)]
    names += [keyword.arg for call in patches for keyword in call.keywords]
    return [str(name) for name in names if re.search(r"(^|\.)_[A-Za-z]\w*$", str(name))]


def test_tests_replace_public_names_alone() -> None:
    files = {str(path): replaced(path.read_text("utf-8")) for path in ROOT.glob("tests/**/*.py")}
    assert len(files) > 100
    assert {path: names for path, names in files.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "monkeypatch.setattr(scan, '_N', 1)",
        "patch.setattr('kp_batch.ingest.scan._N', 1)",
        "patch.object(scan, '_N', 1)",
        "patch.multiple(scan, _N=1)",
    ],
)
def test_a_private_name_that_a_test_replaces_is_reported(source: str) -> None:
    assert len(replaced(source)) == 1
    assert replaced(source.replace("_N", "N")) == []
