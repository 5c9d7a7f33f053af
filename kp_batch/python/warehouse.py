"""A warehouse in Python: the commands of the command line as methods, and its tables as frames."""

from os import PathLike
from pathlib import Path

from kp_batch.arguments import typed
from kp_batch.errors import SettingError
from kp_batch.files import PROJECT_FILE
from kp_batch.project import ProjectFile, load_project
from kp_batch.python.methods.answers import AnswerMethods
from kp_batch.python.methods.history import HistoryMethods
from kp_batch.python.methods.runs import RunMethods
from kp_batch.python.methods.traces import TraceMethods
from kp_batch.python.methods.upkeep import UpkeepMethods
from kp_batch.warehouse.bucket.location import folder_of


class Warehouse(RunMethods, AnswerMethods, TraceMethods, HistoryMethods, UpkeepMethods):
    """A warehouse: a folder of scored tables, or its URL in a bucket.

    The first `run` creates it. Methods work in this process and print nothing. Every method raises
    a `KpBatchError` if it fails.

    Args:
        place: the folder or URL.
        progress: see `score`.

    Examples:
        >>> wh.scores().select(pl.len(), pl.mean("score").round(3)).collect().rows()
        [(600, 0.505)]
    """


@typed
class Project(Warehouse):
    """The warehouse of a project, whose file has its archive, settings and limits.

    Each call reads the file again.

    Args:
        file: the project's file; by default, kp_batch.toml in the current folder.
        progress: see `score`.

    Raises:
        SettingError: the file is missing, has faults, or names no warehouse.

    Examples:
        >>> project = kp.Project()
        >>> project.run().status
        'nothing_to_do'
    """

    def __init__(self, file: str | PathLike[str] = PROJECT_FILE, *, progress: bool = False) -> None:
        self._file = Path(file).expanduser().absolute()
        super().__init__(self._named(self._project), progress=progress)

    @property
    def _project(self) -> ProjectFile:
        """The file as it is now: it may be edited while a notebook is open."""
        return load_project(self._file)

    @property
    def _folder(self) -> Path:
        return Path(folder_of(self._named(self._project)))

    @property
    def _warehouse_id(self) -> str | None:
        return self._project.warehouse_id

    @staticmethod
    def _named(project: ProjectFile) -> str:
        if project.warehouse is None:
            raise SettingError(f'{project.name} names no warehouse: add a line warehouse = "..."')
        return project.warehouse
