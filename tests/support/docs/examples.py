"""The public names of kp_batch with their docstrings, and the examples in these."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, DocTest, DocTestParser, DocTestRunner, Example
from pathlib import Path
from shutil import copytree
from typing import Any

import kp_batch
from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from tests.support import ROOT

# First what most people want; what is not named here comes at the end.
_ORDER = (
    *(
        "score",
        "ScoredFrame",
        "Warehouse",
        "Project",
        "Session",
        "evaluate_value",
        "compare_profiles",
        "reset",
    ),
    *("load_profiles", "WeightProfile", "VectorCache", "replay", "RescoreConfig", "KpBatchError"),
)
# Classes of which only their own docstrings are documented: pydantic's model has its own page.
_WHOLE = ("RescoreConfig", "KpBatchError")
BEGINNING = """\
import kp_batch as kp
import polars as pl

wh = kp.Warehouse("warehouse")
trace = {
    "id": "new",
    "metadata": {"task_domain": "code", "success": True},
    "task": {"objective": "Fix the failing import in the test suite"},
    "steps": [
        {"type": "thought", "content": "The package was renamed"},
        {"type": "tool_call", "tool": {"name": "editor"}, "content": "Rename the import"},
    ],
    "outcome": {"confidence": 0.8},
}
"""
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Examples):$", re.MULTILINE)


@dataclass(frozen=True)
class Documented:
    """A public name, or a public method of one."""

    name: str  # such as Warehouse.run
    value: Any

    @property
    def sections(self) -> dict[str, str]:
        """The parts of its docstring, by their heads; what stands before them under ''."""
        parts = _SECTION.split(inspect.getdoc(self.value) or "")
        heads = dict(zip(parts[1::2], parts[2::2], strict=True))
        return {"": parts[0].strip()} | {
            head: textwrap.dedent(text).strip("\n") for head, text in heads.items()
        }

    @property
    def items(self) -> dict[str, str]:
        """The parameters and the attributes that its docstring explains."""
        found: dict[str, str] = {}
        for head in ("Args", "Attributes"):
            parts = re.split(r"^(\*{0,2}\w+): ?", self.sections.get(head, ""), flags=re.MULTILINE)
            found |= dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))
        return found

    @property
    def examples(self) -> list[Example]:
        """What its docstring shows, and what that prints."""
        return DocTestParser().get_examples(self.sections.get("Examples", ""), self.name)


def documented(name: str) -> Iterator[Documented]:
    """A public name, and its public methods if it is a class of ours."""
    value = getattr(kp_batch, name)
    yield Documented(name, value)
    if inspect.isclass(value) and name not in _WHOLE:
        for method, own in own_of(value):
            is_shown = inspect.isroutine(own) or isinstance(own, property | classmethod)
            if is_shown and not method.startswith("_"):
                yield Documented(f"{name}.{method}", getattr(value, method))


def own_of(value: type) -> Iterator[tuple[str, Any]]:
    """What a class has of its own, and of classes that are not public themselves."""
    for each in value.__mro__:
        if each is not value and (each.__name__ in kp_batch.__all__ or not _is_ours(each)):
            return
        yield from vars(each).items()


def _is_ours(value: type) -> bool:
    return value.__module__.startswith("kp_batch.")


def public_names() -> list[str]:
    """All public names, in the order of the page."""
    return sorted(kp_batch.__all__, key=lambda name: _ORDER.index(name) if name in _ORDER else 99)


def make_folder(folder: Path) -> None:
    """Make what every example begins with: the sample, and the warehouse of a run over it."""
    copytree(ROOT / "data" / "sample", folder / "archive")
    (folder / "kp_batch.toml").write_text(
        'warehouse = "warehouse"\narchive = ["archive"]\n[settings]\nembedder = "hashing"\n',
        "utf-8",
    )
    with chdir(folder):
        rescore_archive(
            RescoreConfig(
                archive=("archive",),
                warehouse=Path("warehouse"),
                embedder="hashing",
            )
        )


def failures(name: str, folder: Path) -> list[str]:
    """Run the examples of a public name, and of its methods; returns what is not as shown."""
    kp_batch.reset()
    told: list[str] = []
    runner = DocTestRunner(optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)
    names: dict[str, Any] = {}
    with chdir(folder):
        exec(BEGINNING, names)
        for each in documented(name):
            test = DocTest(each.examples, {}, each.name, None, None, None)
            test.globs = names  # which those of all methods share
            runner.run(test, out=told.append, clear_globs=False)
    return told


def as_module() -> str:
    """All examples as one module, for the checker of types."""
    parts = [BEGINNING]
    for name in public_names():
        for each in documented(name):
            lines = "".join(example.source for example in each.examples)
            parts.append(f"\n# {each.name}\n{lines}")
    return "".join(parts)
