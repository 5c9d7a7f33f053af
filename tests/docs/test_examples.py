"""The examples of the public names: each is run, prints what it shows, and has types that fit."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.docs.examples import as_module, documented, failures, make_folder, public_names
from tests.support.read.folders import keep, restore

OF_MODEL = ("evaluate_value", "compare_profiles", "reset")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples") / "made"
    make_folder(folder)
    keep(folder)
    return folder


@pytest.mark.slow
@pytest.mark.telling
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.model] * (name in OF_MODEL)) for name in public_names()],
)
def test_an_example_prints_what_it_shows(made: Path, name: str) -> None:
    restore(made)
    assert "\n".join(failures(name, made)) == ""


def test_every_public_name_and_method_has_an_example() -> None:
    each_one = [each for name in public_names() for each in documented(name)]
    assert [each.name for each in each_one if not each.examples] == []
    assert [each.name for each in each_one if not each.sections[""]] == []


@pytest.mark.process
@pytest.mark.telling
def test_the_types_of_the_examples_fit(tmp_path: Path) -> None:
    module = tmp_path / "examples.py"
    module.write_text(as_module(), "utf-8")
    checker = str(Path(sys.executable).with_name("pyrefly"))
    command = [checker, "check", "--config", str(ROOT / "pyproject.toml"), str(module)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
