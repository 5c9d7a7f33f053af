"""Check that arguments of public functions have the annotated types, and counts are not below 0."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, formatannotation, isfunction, signature
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from kp_batch.errors import SettingError
from kp_batch.text import shortened

_Public = TypeVar("_Public", bound=Callable[..., Any])

_NUMBERS = {int: Integral, float: Real}  # NumPy's, too
_SHOWN = 60  # characters of a value


def typed(public: _Public) -> _Public:
    """Refuse arguments of other types than annotated, and counts below 0.

    Of a class, this holds for its public methods.

    The contents of mappings, iterables, frames and arrays are left to their readers.

    Returns:
        The function or the class. It raises a SettingError that names the argument.
    """
    if not isinstance(public, type):
        return _checking(public)
    for name, method in [*vars(public).items()]:
        if isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(public, name, _checking(method))
    return public


def _checking(function: Any) -> Any:
    own = signature(function)

    @wraps(function)
    def checked(*values: Any, **named: Any) -> Any:
        for name, value in own.bind(*values, **named).arguments.items():
            _check(own.parameters[name], value)
        return function(*values, **named)

    return checked


def _check(parameter: Parameter, value: Any) -> None:
    is_trace = get_origin(parameter.annotation) is Mapping  # its reader says what it lacks
    if is_trace or parameter.kind is Parameter.VAR_KEYWORD:
        return
    for each in value if parameter.kind is Parameter.VAR_POSITIONAL else [value]:
        if not _is_of(each, parameter.annotation):
            wanted = formatannotation(parameter.annotation)
            raise SettingError(
                f"{parameter.name} is {shortened(repr(each), _SHOWN)} of type "
                f"{type(each).__name__}; give one of {wanted}"
            )
        if int in (parameter.annotation, *get_args(parameter.annotation)) and _is_below_0(each):
            raise SettingError(f"{parameter.name} is {each}; give 0 or more")


def _is_below_0(value: Any) -> bool:
    return isinstance(value, Integral) and value < 0


def _is_of(value: Any, annotation: Any) -> bool:
    kind, inner = get_origin(annotation) or annotation, get_args(annotation)
    if kind in (Union, UnionType):
        return any(_is_of(value, each) for each in inner)
    if kind is Literal:
        return isinstance(value, type(inner[0]))
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    is_known = isinstance(kind, type) and not getattr(kind, "_is_protocol", False)
    if kind in (Any, Parameter.empty) or not is_known:
        return True
    if not isinstance(value, kind) or type(value).__name__ == "NaTType":  # pandas' missing time
        return False
    is_several = issubclass(kind, Sequence) and not isinstance(value, str)
    return not (inner and is_several) or all(_is_of(each, inner[0]) for each in value)
