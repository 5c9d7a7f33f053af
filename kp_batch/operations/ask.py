"""Asks a question of the catalog by its name, with values in place of SQL."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from kp_batch.duck import SQL, identifier, joined, statement
from kp_batch.errors import KpBatchError
from kp_batch.text import count_of
from kp_batch.warehouse.answer_formats import frame_answer
from kp_batch.warehouse.questions import Question, questions, unknown_question
from kp_batch.warehouse.reader import connect_to
from kp_batch.warehouse.snapshot import PublishedSnapshot

_COLUMNS = {"keys", "unit"}  # parameters that are columns of the scores; all others are values


def ask(
    snapshot: PublishedSnapshot, name: str, values: Sequence[Any], named: Mapping[str, Any]
) -> pl.DataFrame:
    """The answer to a question.

    Args:
        snapshot: the tables that are asked.
        name: of the question.
        values: of its parameters, in their order: names of columns where these are keys or a unit,
            names of runs, see `find_runs`, where they are runs.
        named: further ones, by their names.

    Raises:
        KpBatchError: there is no such question, values are missing or too many, or DuckDB refuses
            one.
    """
    known = {question.name: question for question in questions()}
    if name not in known:
        raise unknown_question(name)
    arguments, parameters = list[SQL](), list[object]()
    for parameter, value in _bound(known[name], values, named).items():
        if parameter in _COLUMNS:
            arguments.append(_column(value))
            continue
        is_run = parameter.startswith("run_")
        arguments.append(statement("?"))
        parameters.append(snapshot.find_runs(str(value))[0].run_id if is_run else value)
    with connect_to(snapshot) as connection:
        return frame_answer(connection, _query(known[name], arguments), parameters)


def _query(question: Question, arguments: Sequence[SQL]) -> SQL:
    name = identifier(question.name)
    if "(" not in question.call:
        return statement("FROM $name", name=name)
    call = statement("$name($arguments)", name=name, arguments=joined(arguments))
    if question.example.startswith("SELECT"):
        return statement("SELECT $call AS $name", call=call, name=name)
    return statement("FROM $call", call=call)


def _bound(question: Question, values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each parameter of a question."""
    parameters = [each for each in question.call.partition("(")[2].rstrip(")").split(", ") if each]
    given = dict(zip(parameters, values, strict=False)) | dict(named)
    if len(values) + len(named) != len(parameters) or {*given} != {*parameters}:
        needed = f"takes {', '.join(parameters)}" if parameters else "takes no values"
        counted = count_of(len(values) + len(named), "value")
        raise KpBatchError(
            f"{question.name} {needed}, got {counted}; ask as in: {question.example}"
        )
    return {name: given[name] for name in parameters}


def _column(names: str | Sequence[str]) -> SQL:
    """One column, or several as a struct."""
    if isinstance(names, str):
        return identifier(names)
    pairs = (statement("$name: $name", name=identifier(name)) for name in names)
    return statement("{$pairs}", pairs=joined(pairs))
