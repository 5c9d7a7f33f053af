"""Where a warehouse is, and what all its methods begin with."""

import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kp_batch.arguments import typed
from kp_batch.errors import SettingError
from kp_batch.faults import unknown_key
from kp_batch.project import Project as ProjectFile
from kp_batch.python.calls import Settings, called, config_of
from kp_batch.storage.urls import is_url
from kp_batch.warehouse.bucket.location import folder_of, shown

if TYPE_CHECKING:
    from kp_batch.config import RescoreConfig
    from kp_batch.warehouse.snapshot import PublishedSnapshot


@typed
class Place:
    """A warehouse's place, and the project that it is of, if it is of one."""

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
            SettingError: others than `Settings` are given, as another warehouse, or one cannot be.
        """
        known = Settings.__annotations__
        if unknown := [unknown_key("", name, known) for name in settings if name not in known]:
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
        for text in told:  # no result has these
            warnings.warn(text, stacklevel=4)

    @contextmanager
    def _snapshot(self, as_of: str | None) -> Generator["PublishedSnapshot"]:
        from kp_batch.warehouse.snapshot import published

        with self._reading() as folder:
            yield published(folder, as_of)
