"""The place of a warehouse, and what all its methods begin with."""

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
_WARNINGS: ContextVar[list[str] | None] = ContextVar("warnings", default=None)  # see `_as_call`


def _as_call(method: Callable[P, R]) -> Callable[P, R]:
    """Let Ctrl-C end a method, and warn its caller of what the result does not contain."""

    @wraps(method)
    def called_by_user(*args: P.args, **kwargs: P.kwargs) -> R:
        if _WARNINGS.get() is not None:  # by another method
            return method(*args, **kwargs)
        texts: list[str] = []
        token = _WARNINGS.set(texts)
        try:
            return interruptible(method)(*args, **kwargs)
        finally:
            _WARNINGS.reset(token)
            for text in texts:
                warnings.warn(text, stacklevel=3)  # of who calls what `typed` makes of it

    return called_by_user


@typed
class Place:
    """The place of a warehouse, and its project, if there is one.

    All public methods of subclasses are calls: see `_as_call`.
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
        """The folder of the tables, so that a warehouse can be passed as a path."""
        return str(self._folder)

    @property
    def _folder(self) -> Path:
        """The folder of the tables; for a bucket, of its copy, which depends on the environment."""
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

        with self._called() as texts:
            refresh(self._folder)
            check_identity(self._folder, self._warehouse_id)
            yield self._folder
        if (of_call := _WARNINGS.get()) is not None:
            of_call += texts

    @contextmanager
    def _snapshot(self, as_of: str | None) -> Generator["PublishedSnapshot"]:
        from kp_batch.warehouse.snapshot import published

        with self._reading() as folder:
            yield published(folder, as_of)
