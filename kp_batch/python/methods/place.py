"""Where a warehouse is, and what all its methods begin with."""

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import isfunction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kp_batch.arguments import typed
from kp_batch.errors import SettingError
from kp_batch.faults import unknown_key
from kp_batch.project import ProjectFile
from kp_batch.python.calls import KEYWORDS, called, config_of
from kp_batch.stopping import interruptible
from kp_batch.storage.urls import is_url
from kp_batch.warehouse.bucket.location import folder_of, shown

if TYPE_CHECKING:
    from kp_batch.config import RescoreConfig
    from kp_batch.warehouse.snapshot import PublishedSnapshot


P = ParamSpec("P")
R = TypeVar("R")
_TOLD: ContextVar[list[str] | None] = ContextVar("told", default=None)  # see `_as_call`


def _as_call(method: Callable[P, R]) -> Callable[P, R]:
    """Have Ctrl-C end a method, and warn its caller of what no result has."""

    @wraps(method)
    def called_by_user(*args: P.args, **kwargs: P.kwargs) -> R:
        if _TOLD.get() is not None:  # by another method
            return method(*args, **kwargs)
        told: list[str] = []
        token = _TOLD.set(told)
        try:
            return interruptible(method)(*args, **kwargs)
        finally:
            _TOLD.reset(token)
            for text in told:
                warnings.warn(text, stacklevel=3)  # of who calls what `typed` makes of it

    return called_by_user


@typed
class Place:
    """A warehouse's place, and the project that it is of, if it is of one.

    All public methods of what is made of it are calls: see `_as_call`.
    """

    def __init_subclass__(cls) -> None:
        for name, method in [*vars(cls).items()]:
            if isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _as_call(method))

    def __init__(self, place: str | PathLike[str], *, progress: bool = False) -> None:
        folder_of(place)
        self._place = place if is_url(str(place)) else Path(folder_of(place)).absolute()
        self._progress = progress

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self._folder)!r})"

    def __fspath__(self) -> str:
        """Its folder: what takes that, such as a `Session`, takes a warehouse as well."""
        return str(self._folder)

    @property
    def _folder(self) -> Path:
        """Of the tables; of a bucket that of its copy, which depends on the environment."""
        return Path(folder_of(self._place))

    @property
    def _project(self) -> ProjectFile | None:
        return None

    @property
    def _warehouse_id(self) -> str | None:
        return None

    def _config(
        self, archive: Sequence[Any], settings: Mapping[str, Any], *, preview: bool = False
    ) -> "RescoreConfig":
        """The settings of a run.

        Raises:
            SettingError: others than `KEYWORDS` are given, as another warehouse, or one cannot be.
        """
        others = [name for name in settings if name not in KEYWORDS]
        if unknown := [unknown_key("", name, KEYWORDS) for name in others]:
            raise SettingError("; ".join(unknown))
        place = {"warehouse": self._folder, "archive": archive, "project": self._project}
        return config_of({**place, "preview": preview, **settings})

    def _called(self) -> AbstractContextManager[list[str]]:
        return called(progress=self._progress)

    @contextmanager
    def _reading(self) -> Generator[Path]:
        """The folder of the tables; of a bucket the local copy, made equal to it."""
        from kp_batch.warehouse.bucket.mirror import refresh
        from kp_batch.warehouse.manifest import check_identity

        with self._called() as told:
            refresh(self._folder)
            check_identity(self._folder, self._warehouse_id)
            yield self._folder
        if (of_call := _TOLD.get()) is not None:
            of_call += told

    @contextmanager
    def _snapshot(self, as_of: str | None) -> Generator["PublishedSnapshot"]:
        from kp_batch.warehouse.snapshot import published

        with self._reading() as folder:
            yield published(folder, as_of)
