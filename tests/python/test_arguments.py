"""Arguments of a wrong type: an error that names them, whichever public function takes them."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np
import pandas as pd
import pytest
from numpy.typing import ArrayLike

import kp_batch as kp
from kp_batch.errors import SettingError
from kp_batch.python.frames import lines

# A value of each kind that parameters without a default have.
SOUND: dict[Any, Any] = {
    str: "a",
    Mapping: {},
    datetime: datetime(2026, 1, 5, tzinfo=UTC),
    np.ndarray: np.zeros((1, 2), np.float32),
}
# What pydantic or dataclasses check, and the frame that Polars makes.
OTHERS = {"KpBatchError", "RescoreConfig", "ScoredFrame", "WeightProfile", "score"}


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    own: dict[str, Any] = {
        "Warehouse": kp.Warehouse("nowhere"),
        "Session": kp.Session(embedder="none"),
        "VectorCache": kp.VectorCache(dimensions=2),
    }
    for name in sorted({*kp.__all__} - OTHERS):
        yield name, getattr(kp, name)
    for name, instance in own.items():
        for method, value in inspect.getmembers(instance, inspect.ismethod):
            if not method.startswith("_"):
                yield f"{name}.{method}", value


def parameters() -> Iterator[Any]:
    for name, function in public():
        for each in inspect.signature(function).parameters.values():
            kinds = {each.annotation, get_origin(each.annotation), *get_args(each.annotation)}
            if each.kind is not each.VAR_KEYWORD and not {Any, ArrayLike, Mapping} & kinds:
                yield pytest.param(function, each, id=f"{name} {each.name}")


def sound(annotation: Any) -> Any:
    if annotation is ArrayLike:
        return np.zeros(2)
    if get_origin(annotation) in (Union, UnionType):
        annotation = get_args(annotation)[0]
    return SOUND.get(get_origin(annotation) or annotation, 1)


@pytest.mark.parametrize(("function", "wrong"), [*parameters()])
def test_an_argument_of_another_type_is_named(
    function: Callable[..., Any], wrong: inspect.Parameter
) -> None:
    values, named = list[Any](), dict[str, Any]()
    for each in inspect.signature(function).parameters.values():
        value = object() if each.name == wrong.name else sound(each.annotation)
        if each.name != wrong.name and each.default is not each.empty:
            continue
        if each.kind is each.VAR_POSITIONAL and each.name == wrong.name:
            values.append(value)
        elif each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            named[each.name] = value
    with pytest.raises(SettingError, match=f"^{wrong.name} is <object object .*>.* of type object"):
        function(*values, **named)


@pytest.mark.parametrize("now", [date(2026, 1, 5), "2026-01-05", pd.NaT, np.datetime64("2026-01")])
def test_what_is_no_time_is_refused_wherever_one_is_taken(now: Any) -> None:
    cache = kp.VectorCache(dimensions=2)
    for take in (
        lambda: kp.Session(embedder="none").evaluate({}, now),
        lambda: kp.evaluate_value({}, now),
        lambda: kp.Warehouse("nowhere").score({}, at=now),
        lambda: cache.add([1, 0], now),
        lambda: cache.nearest([1, 0], now),
        lambda: cache.max_cosine_similarity([1, 0], now),
        lambda: cache.evict_expired(now),
    ):
        with pytest.raises(SettingError, match=r"^(now|at) is .* give one of datetime\.datetime"):
            take()


def test_a_time_of_pandas_and_numbers_of_numpy_are_as_those_of_python() -> None:
    cache = kp.VectorCache(max_elements=np.int64(3), dimensions=2, ttl=pd.Timedelta("1h"))  # type: ignore[arg-type]
    cache.add([1, 0], pd.Timestamp("2026-01-05T08:00"))
    assert cache.max_cosine_similarity([1, 0], datetime(2026, 1, 5, 8, 59, tzinfo=UTC)) == 1
    assert cache.max_cosine_similarity([1, 0], datetime(2026, 1, 5, 9)) is None  # noqa: DTZ001


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize(
    "time",
    [
        datetime(2026, 1, 5, tzinfo=UTC),
        datetime(2026, 1, 5, 12),  # noqa: DTZ001
        pd.Timestamp("2026-01-05T12:00"),
        "2026-01-05T12:00",
    ],
)
def test_a_time_is_no_day(name: str, time: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=rf"^{name}: it must be a day, .*, got .*; .* where="):
        kp.Warehouse(tmp_path).export("a.jsonl", **{name: time})


@pytest.mark.parametrize("vector", [5, "zz", {"a": 1}, [[1, 0]], [1, "x"]])
def test_what_is_no_vector_is_refused(vector: Any) -> None:
    cache = kp.VectorCache(dimensions=2)
    with pytest.raises((ValueError, SettingError), match="vector"):
        cache.nearest(vector)


def test_several_paths_may_be_one_argument(tmp_path: Path) -> None:
    wh = kp.Warehouse(tmp_path / "warehouse")
    for given in (["a", Path("b")], ("a", "b"), [["a"]]):
        for call in (wh.run, wh.preview, wh.plan):
            with pytest.raises(kp.KpBatchError, match=r"^no Parquet .* file at 'a';|^archive is"):
                call(given)  # type: ignore[arg-type]


def test_a_path_among_paths_that_is_none_is_named() -> None:
    with pytest.raises(SettingError, match="traces mixes paths with values of type NoneType"):
        kp.score(["a.parquet", None], embedder="none")
    with pytest.raises(SettingError, match="traces contains a value of type int; give a mapping"):
        lines([1])


@pytest.mark.parametrize("name", ["top", "suggest"])
def test_a_count_below_0_is_refused(name: str) -> None:
    call = {"top": kp.Warehouse.similar, "suggest": kp.Warehouse.fit_weights}[name]
    with pytest.raises(SettingError, match=f"^{name} is -1; give 0 or more$"):
        call(kp.Warehouse("nowhere"), "t1", **{name: -1})
