"""Answer a question of the catalog, by its name and values instead of SQL."""

import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import polars as pl

from kp_batch.duck import SQL, identifier, joined, literal, statement
from kp_batch.errors import KpBatchError
from kp_batch.text import count_of
from kp_batch.warehouse.answer_formats import frame_answer
from kp_batch.warehouse.questions import Question, questions, unknown_question
from kp_batch.warehouse.reader import connect_to
from kp_batch.warehouse.snapshot import PublishedSnapshot

# A parameter of a call, and its default.
_PARAMETER = re.compile(r"(\w+)(?: := (\[.*?\]|[^,]+))?(?:, |$)")


def ask(
    snapshot: PublishedSnapshot, name: str, values: Sequence[Any], named: Mapping[str, Any]
) -> pl.DataFrame:
    """Return the answer to a question.

    Args:
        snapshot: the tables to query.
        name: the name of the question.
        values: the values of its parameters, in order. Columns, periods and measures are texts or
            lists of texts, runs are names for `find_runs`, a condition is SQL.
        named: further values, by the names of their parameters.

    Raises:
        KpBatchError: there is no such question, values are missing or too many, or DuckDB refuses
            one.
    """
    known = {question.name: question for question in questions()}
    if name not in known:
        raise unknown_question(name)
    bound = _bound(known[name], values, named)
    arguments = [_argument(snapshot, *each) for each in bound.items()]
    with connect_to(snapshot) as connection:
        return frame_answer(connection, _query(known[name], arguments))


def _argument(snapshot: PublishedSnapshot, name: str, value: Any) -> SQL:
    """Return the value of a parameter as a literal: DuckDB takes no columns as prepared values."""
    if name.startswith("run_"):
        value = snapshot.find_runs(str(value))[0].run_id
    is_sql = name == "condition" and isinstance(value, str)
    text = SQL(value) if is_sql else _literal(value)
    return statement("$name := ($text)", name=identifier(name), text=text)


def _literal(value: Any) -> SQL:
    if value is None:
        return statement("NULL")
    if isinstance(value, bool | Integral):
        return statement("$value", value=int(value))
    if isinstance(value, Real):  # as a text, which may be that of infinity
        return statement("$text::DOUBLE", text=literal(str(float(value))))
    if isinstance(value, Iterable) and not isinstance(value, str):
        return statement("[$values]", values=joined(map(_literal, value)))
    return literal(str(value))


def _query(question: Question, arguments: Sequence[SQL]) -> SQL:
    name = identifier(question.name)
    if "(" not in question.call:
        return statement("FROM $name", name=name)
    call = statement("$name($arguments)", name=name, arguments=joined(arguments))
    if question.example.startswith("SELECT"):
        return statement("SELECT $call AS $name", call=call, name=name)
    return statement("FROM $call", call=call)


def _bound(question: Question, values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each parameter of a question."""
    call = question.call.partition("(")[2].removesuffix(")")
    defaults = dict(_PARAMETER.findall(call))
    given = dict(zip(defaults, values, strict=False)) | dict(named)
    needed = {name for name, default in defaults.items() if not default}
    if len(given) < len(values) + len(named) or not needed <= {*given} <= {*defaults}:
        takes = f"takes {call}" if call else "takes no values"
        counted = count_of(len(values) + len(named), "value")
        raise KpBatchError(f"{question.name} {takes}, got {counted}; example: {question.example}")
    return {name: value for name, value in given.items() if value is not None or name in needed}
