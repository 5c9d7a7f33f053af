"""Reads the SQL that stands in files of its own."""

from importlib.resources import files
from string import Template


def sql(module: str, name: str, **values: object) -> str:
    """Read a file of SQL.

    Args:
        module: the name of a module that stands beside it.
        name: the file's name.
        values: they replace the file's `$names`, if any are given.
    """
    text = files(module.rpartition(".")[0]).joinpath(name).read_text("utf-8")
    return Template(text).substitute(values) if values else text
