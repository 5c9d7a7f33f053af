"""The messages of the package as its code has them, and whether they say what to do.

`python -m tests.docs.messages` writes all of them to `messages.txt`, to be read from top to bottom.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kp_batch import errors
from tests.support.docs.modules import parsed_modules

LIST = Path(__file__).with_name("messages.txt")

_CALLS = {"warn"} | {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.KpBatchError)
}
# What a clause of a message begins with that says what to do.
_TO_DO = """
    add ask bring change check choose compare correct delete do export fill fix free give import
    install kp-batch leave let look make move name pip put raise read remove replace restore
    roll run see select set start take try use wait write
"""
_ADVICE = re.compile(
    rf"(?:^|[;:,.] |\b(?:and|else|first|or):? )(?:{'|'.join(_TO_DO.split())})\b"
    # A command or an option that does it, or what there is to choose from.
    r"|to allow it this once|makes? (?:it|them) again|lists all of them"
    r"|there are \.\.\.|(?:first|example): \.\.\.|--force"
    # Each fault in a list says what may stand there.
    r"|\bfaults\b|\bhas \.\.\.: ",
    re.IGNORECASE,
)


def strings(tree: ast.AST) -> list[str]:
    """The texts in a piece of code, cut where a value is put into them."""
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def all_messages(modules: Iterable[ast.Module]) -> list[str]:
    """Each message of some words once, sorted."""
    found = {*messages(modules)}
    return sorted(each for each in found if len(each.replace("...", "").split()) > 1)


def says_what_to_do(message: str) -> bool:
    """Whether a message says what to do, or lists faults."""
    return bool(_ADVICE.search(message))


def messages(modules: Iterable[ast.Module]) -> Iterator[str]:
    """The messages of errors and warnings, `...` where a value is put into them.

    Of what is in a name, the texts that it is given in its function, or in any module, are put in.
    """
    trees = [*modules]
    constants = _given(trees)
    for function in (each for tree in trees for each in _functions(tree)):
        if calls := [*_calls(function)]:
            named = {**constants, **_given([function])}
            for call in calls:
                yield from _texts(call.args[0], named)


def _functions(tree: ast.Module | ast.ClassDef) -> Iterator[ast.AST]:
    """The functions and methods, with what is defined within each."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node)


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    """Where errors and warnings are made."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and node.args and _name(node.func) in _CALLS:
            yield node


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _given(trees: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """What each name is given, at the top of a module or anywhere in a function."""
    given: dict[str, list[ast.expr]] = {}
    for tree in trees:
        nodes = tree.body if isinstance(tree, ast.Module) else ast.walk(tree)
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                given.setdefault(node.targets[0].id, []).append(node.value)
    return given


def _texts(written: ast.expr, named: Mapping[str, list[ast.expr]]) -> list[str]:
    """The texts that an expression may be."""
    match written:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(_part(part, named) for part in parts)]
        case ast.IfExp(body=one, orelse=other):
            return [*_texts(one, named), *_texts(other, named)]
        case ast.Name(id=name):
            others = {other: value for other, value in named.items() if other != name}
            return [text for value in named.get(name, ()) for text in _texts(value, others)]
        case _:
            return []


def _part(part: ast.expr, named: Mapping[str, list[ast.expr]]) -> str:
    """A part of a text; of a value all texts that it may be."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    texts = " ".join(filter(None, _texts(value, named)))
    is_told_where = isinstance(value, ast.Name) and value.id in {"see", "remedy"}  # its callers
    return texts or ("see" if is_told_where else "...")


if __name__ == "__main__":
    LIST.write_text("\n".join(all_messages(parsed_modules().values())) + "\n", "utf-8")
