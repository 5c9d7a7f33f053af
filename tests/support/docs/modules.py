"""The modules of the package, parsed."""

import ast
from pathlib import Path

from tests.support import ROOT


def parsed_modules() -> dict[Path, ast.Module]:
    """Return the syntax tree of each module of the package, by its path."""
    paths = sorted(ROOT.glob("kp_batch/**/*.py"))
    return {path: ast.parse(path.read_text("utf-8")) for path in paths}
