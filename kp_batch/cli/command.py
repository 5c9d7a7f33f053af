"""What the child process is asked to do, and how it tells what came of it."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Tell = Callable[[R], None]


@dataclass(frozen=True)
class Command(Generic[P, R]):
    """One thing that the child can be asked to do.

    Its function takes JSON values and tells the result once, as soon as it is known; it may go on
    after that.
    """

    name: str  # in the request
    function: Callable[Concatenate[Tell[R], P], None]
    result: type[R]  # a dataclass of JSON values and of such dataclasses


def json_line(result: object) -> str:
    """Write a result as one line of JSON.

    NaN and infinity, which JSON lacks, are `NaN` and `Infinity`, as Python and pydantic read them.
    """
    return json.dumps(result, default=asdict)
