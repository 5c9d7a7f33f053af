"""Writes the public names of kp_batch for docs/reference, from their docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator

from tests.support.docs.examples import BEGINNING, Documented, documented, own_of, public_names

_OWN = ("self", "cls")
# What our own names of types stand for.
_TYPES = {
    "Setting": "settings of a run",
    "Several": "str | list[str]",
    "Duration": "str | timedelta",
    "Profiles": "str | PathLike[str] | Mapping[str, Any]",
    "Traces": "frames, mappings or paths",
    "Trace": "Mapping[str, Any]",
}


def python() -> Iterator[str]:
    """Every public name: what it does, its parameters, result and errors, and an example."""
    yield f"```python\n{BEGINNING}```\n"
    for name in public_names():
        for each in documented(name):
            yield from _described(each, "##" if each.name == name else "###")


def _described(each: Documented, head: str) -> Iterator[str]:
    sections, function = each.sections, _function(each)
    yield f"{head} {each.name}\n"
    if function is not None:
        result = f" -> {_type(function.returns)}" if function.returns else ""
        is_class = inspect.isclass(each.value)
        yield f"```text\n{_call(each.name, function)}{'' if is_class else result}\n```\n"
    yield f"{_prose(sections[''])}\n"
    yield from _parameters(each, function)
    if result := sections.get("Returns") or sections.get("Yields"):
        yield f"Returns: {_prose(result)}\n"
    if errors := sections.get("Raises"):
        yield f"Raises: {_joined(errors)}\n"
    if examples := sections.get("Examples"):
        yield f"```pycon\n{examples.strip()}\n```\n"


def _function(each: Documented) -> ast.FunctionDef | None:
    """What is called: of a class with parameters of its own, what makes an object."""
    value = each.value
    if inspect.isclass(value):
        value = dict(own_of(value)).get("__init__")
    if not inspect.isroutine(value) or "@" in getattr(value, "__qualname__", ""):
        return None
    try:
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    except OSError:  # a dataclass's
        return None
    return tree if isinstance(tree, ast.FunctionDef) else None


def _call(name: str, function: ast.FunctionDef) -> str:
    """The name with its parameters and their defaults, on several lines if it is long."""
    bare = ast.parse(ast.unparse(function.args).join(("def _(", "): ...")))
    for node in ast.walk(bare):
        if isinstance(node, ast.arg):
            node.annotation = None
    [only] = bare.body
    assert isinstance(only, ast.FunctionDef)
    parameters = re.sub(r"^(self|cls)(, )?", "", ast.unparse(only.args))
    return f"{name}({parameters})"


def _parameters(each: Documented, function: ast.FunctionDef | None) -> Iterator[str]:
    """A table of the parameters, or of what a class has, as far as the docstring explains them."""
    types = _types(function) if function else {}
    if not each.items:
        return
    if types:
        yield "| parameter | type | meaning |\n|---|---|---|"
    else:
        yield "| attribute | meaning |\n|---|---|"
    for name, text in each.items.items():
        kind = types.get(name.lstrip("*"), "")
        cells = [f"`{kind}`" if kind else ""] if types else []
        yield f"| {' | '.join([f'`{name}`', *map(_cell, cells), _cell(text)])} |"
    yield ""


def _types(function: ast.FunctionDef) -> dict[str, str]:
    """The types of the parameters; the call above the table has their defaults."""
    args = function.args
    several = (arg for arg in (args.vararg, args.kwarg) if arg)
    every = (*args.posonlyargs, *args.args, *args.kwonlyargs, *several)
    return {arg.arg: _type(arg.annotation) for arg in every if arg.arg not in _OWN}


def _type(annotation: ast.expr | None) -> str:
    written = "" if annotation is None else ast.unparse(annotation).replace("'", "")
    words = "|".join(rf"\b{re.escape(name)}(?!\w)" for name in _TYPES)
    return re.sub(words, lambda each: _TYPES[each[0]], written)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _joined(errors: str) -> str:
    """The errors of a docstring, one after the other."""
    items = re.split(r"^(\w[\w, ]*): ", errors, flags=re.MULTILINE)[1:]
    pairs = zip(items[::2], items[1::2], strict=True)
    return (
        "; ".join(
            f"{', '.join(f'`{name.strip()}`' for name in names.split(','))}: "
            f"{_cell(text).removesuffix('.')}"
            for names, text in pairs
        )
        + "."
    )


def _prose(text: str) -> str:
    """Paragraphs on a line each; what is indented below `::` as it stands."""
    parts = re.split(r"\n\n(?=    )|\n\n(?! )", text)
    return "\n\n".join(
        f"```text\n{textwrap.dedent(part)}\n```"
        if part.startswith("    ")
        else re.sub(r"\s*\n\s*(?!- )", " ", part).replace("::", ":").strip()
        for part in parts
    )
