"""Describe faults of settings, rules and states to those who wrote them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from kp_batch.text import shortened

if TYPE_CHECKING:  # importing it takes longer than printing help
    from pydantic import BaseModel, ValidationError

Place = Sequence[int | str]  # the names and list positions that lead to a value
_VALUE = 60  # characters of a value in a message
# What a value should be, by the beginning of pydantic's fault type; the first match counts.
_KINDS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "bool_": "true or false",
    "int_": "a whole number",
    "float_": "a number",
    "string_": "a text",
    "path_": "a path",
    "is_instance_": "a path",
    "datetime_": "a time",
    "time_delta_": "a duration",
    "dict_": "a table",
    "model_": "a table",
    "dataclass_": "the path of a file, or its tables",
    "list_": "a list",
    "tuple_": "a list",
}


def faults_of(
    error: "ValidationError", model: "type[BaseModel]", named: Callable[[Place], str]
) -> str:
    """Return all faults of a value, on one line; see `faults_in`."""
    return "; ".join(faults_in(error, model, named))


def faults_in(
    error: "ValidationError", model: "type[BaseModel]", named: Callable[[Place], str]
) -> list[str]:
    """Return the faults of a value.

    Args:
        error: pydantic's error.
        model: the model that the value should fit.
        named: returns the user's name of a place, such as an option; '' for the whole value.
    """
    return [_fault(dict(each), model, named) for each in error.errors()]


def _fault(fault: dict[str, Any], model: "type[BaseModel]", named: Callable[[Place], str]) -> str:
    kind, place, name = fault["type"], fault["loc"], named(fault["loc"])
    if kind == "extra_forbidden":
        *table, key = place
        if table and key in _keys(model):  # in TOML it falls into the table above it
            return f"{named(table)} has no key {key!r}: write it before all tables"
        return unknown_key(named(table), str(key), _keys(_model_at(model, table)))
    if kind == "value_error":  # our own; for a whole table it is the whole message
        message = fault["msg"].removeprefix("Value error, ")
        return f"{name}{' ' if _model_at(model, place) else ': '}{message}" if name else message
    return f"{name or 'it'} {_fault_text(kind, fault)}"


def _fault_text(kind: str, fault: dict[str, Any]) -> str:
    """Return the message for a value that pydantic itself refuses."""
    if kind == "missing":
        return "is missing"
    if kind.endswith("too_short"):
        return "is empty"
    if kind == "json_invalid":
        return f"is {fault['msg'].replace('Invalid JSON', 'not JSON')}"
    bounds = {name: _number(bound) for name, bound in fault.get("ctx", {}).items()}
    kinds = (what for begin, what in _KINDS.items() if kind.startswith(begin))
    wanted = next(kinds, fault["msg"]).format(**bounds)
    return f"must be {wanted}, got {shortened(repr(fault['input']), _VALUE)}"


def _number(bound: Any) -> Any:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def unknown_key(table: str, key: str, keys: Collection[str]) -> str:
    """Return the message for a key that a table does not have; '' is the whole file or form."""
    similar = most_similar(key, keys)
    meant = f", did you mean {similar!r}?" if similar else ";"
    has = f"{table} has" if table else "there is"
    return f"{has} no key {key!r}{meant} keys: {', '.join(keys)}"


def most_similar(name: str, names: Collection[str]) -> str | None:
    """Return the name that was probably meant; None if no name is similar."""
    return next(iter(get_close_matches(name, names, n=1)), None)


def _model_at(model: "type[BaseModel]", place: Place) -> "type[BaseModel] | None":
    """Return the model of a table within another one; None if the place is no table."""
    found: Any = model
    for name in place:
        fields = getattr(found, "model_fields", {})
        kinds = fields[name].annotation if name in fields else None
        found = next((kind for kind in _alternatives(kinds) if hasattr(kind, "model_fields")), None)
    return found


def _alternatives(annotation: Any) -> Iterator[Any]:
    yield annotation
    yield from get_args(annotation)


def _keys(model: "type[BaseModel] | None") -> list[str]:
    fields = model.model_fields if model else {}
    return [field.alias or name for name, field in fields.items()]
