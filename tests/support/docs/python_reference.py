"""Writes the public names of kp_batch for docs/reference, from their docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping

import click

from kp_batch.cli import kp_batch
from tests.support.docs.examples import BEGINNING, Documented, documented, own_of, public_names

_OWN = ("self", "cls")
_SEE = "see `"  # how a docstring begins what another one explains
_WIDTH = 100
# What our own names of types stand for, and others in short.
_TYPES = {
    "Setting": "Any",
    "Several": "str | list[str]",
    "Duration": "str | timedelta",
    "Profiles": "str | PathLike | Mapping",
    "Trace": "Mapping",
    "Archive": "str | PathLike | list",
    "PathLike[str]": "PathLike",
    "Mapping[str, Any]": "Mapping",
    "npt.ArrayLike": "ArrayLike",
}


def python() -> Iterator[str]:
    """Every public name: what it does, its parameters, result and errors, and an example."""
    every = [(name, each) for name in public_names() for each in documented(name)]
    shared = _shared([each for _, each in every])
    yield f"```python\n{BEGINNING}```\n"
    yield "## Shared parameters\n"
    yield from (*_list(shared), "")
    for name, each in every:
        yield from _described(each, "##" if each.name == name else "###", shared)


def _shared(every: Collection[Documented]) -> dict[str, str]:
    """The parameters to whose explanation other docstrings refer, as in "see `score`."."""
    items = {each.name: each.items for each in every}
    items = {name.rpartition(".")[2]: its for name, its in items.items()} | items
    seen = [
        (name, text.removeprefix(_SEE).rstrip("`."))
        for each in every
        for name, text in each.items.items()
        if text.startswith(_SEE)
    ]
    return {name: items[target][name] for name, target in sorted({*seen})}


def _described(each: Documented, head: str, shared: Mapping[str, str]) -> Iterator[str]:
    sections, function = each.sections, _function(each)
    yield f"{head} {each.name}\n"
    if function is not None:
        yield f"```text\n{_call(each, function)}\n```\n"
    command = _command(each)
    link = f" [Command](commands.md#kp-batch-{command})." if command else ""
    yield f"{_prose(sections[''])}{link}\n"
    own = {
        name: text
        for name, text in each.items.items()
        if not text.startswith(_SEE) and shared.get(name) != text and name not in _options(command)
    }
    yield from (*_list(own), "") if own else ()
    if result := sections.get("Returns") or sections.get("Yields"):
        yield f"Returns: {_prose(result)}\n"
    if errors := sections.get("Raises"):
        yield f"Raises: {_joined(errors)}\n"
    if examples := sections.get("Examples"):
        yield f"```pycon\n{examples.strip()}\n```\n"


def _command(each: Documented) -> str:
    """The command that does the same as a method of a warehouse; empty if there is none."""
    place, _, method = each.name.partition(".")
    return method if place == "Warehouse" and method in kp_batch.commands else ""


def _options(command: str) -> set[str]:
    """The names of a command's options in Python."""
    if not command:
        return set()
    found = kp_batch.commands[command]
    with click.Context(found) as context:
        options = [each for each in found.get_params(context) if isinstance(each, click.Option)]
    return {opt.strip("-").replace("-", "_") for each in options for opt in each.opts}


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


def _call(each: Documented, function: ast.FunctionDef) -> str:
    """The name with its parameters, types and defaults, on several lines if it is long."""
    is_class = inspect.isclass(each.value)
    result = "" if is_class else _type(function.returns)
    end = f") -> {result}" if result not in ("", "None") else ")"
    parameters = [*_parameters(function.args)]
    line = f"{each.name}({', '.join(parameters)}{end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join((f"{each.name}(", *(f"    {parameter}," for parameter in parameters), end))


def _parameters(args: ast.arguments) -> Iterator[str]:
    own = [each for each in (*args.posonlyargs, *args.args) if each.arg not in _OWN]
    first = [None] * (len(own) - len(args.defaults))
    yield from map(_parameter, own, (*first, *args.defaults))
    if args.vararg:
        yield f"*{_parameter(args.vararg)}"
    elif args.kwonlyargs:
        yield "*"
    yield from map(_parameter, args.kwonlyargs, args.kw_defaults)
    if args.kwarg:
        yield f"**{_parameter(args.kwarg)}"


def _parameter(parameter: ast.arg, default: ast.expr | None = None) -> str:
    """Its name, default and type, as far as the default does not say this."""
    kind = _type(parameter.annotation)
    if default is None:
        return f"{parameter.arg}: {kind}" if kind else parameter.arg
    shown = ast.unparse(default)
    if isinstance(default, ast.Constant) and kind == type(default.value).__name__:
        return f"{parameter.arg}={shown}"
    return f"{parameter.arg}: {kind.removesuffix(f' | {shown}')} = {shown}"


def _type(annotation: ast.expr | None) -> str:
    written = "" if annotation is None else ast.unparse(annotation).replace("'", "")
    words = "|".join(rf"\b{re.escape(name)}(?!\w)" for name in _TYPES)
    return re.sub(words, lambda each: _TYPES[each[0]], written)


def _list(items: Mapping[str, str]) -> Iterator[str]:
    yield from (f"- `{name}`: {' '.join(text.split())}" for name, text in items.items())


def _joined(errors: str) -> str:
    """The errors of a docstring, one after the other."""
    items = re.split(r"^(\w[\w, ]*): ", errors, flags=re.MULTILINE)[1:]
    pairs = zip(items[::2], items[1::2], strict=True)
    return (
        "; ".join(
            f"{', '.join(f'`{name.strip()}`' for name in names.split(','))}: "
            f"{' '.join(text.split()).removesuffix('.')}"
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
