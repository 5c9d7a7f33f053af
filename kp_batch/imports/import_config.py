"""The settings of an import, as Prefect's form has them; the command line has them as options."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import Format
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import SettingError
from kp_batch.imports.import_limits import MAX_REFUSED, MAX_UNREADABLE, ImportLimits
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported
from kp_batch.project import Project
from kp_batch.settings import Limit, Table

_AUTO = "auto"


def format_named(name: str) -> Format | None:
    """The format of a name; None for auto, which `import_traces` resolves.

    Raises:
        ValueError: there is no such format.
    """
    if name not in (*FORMATS, _AUTO):
        raise ValueError(f"{name!r} is none of {', '.join(FORMATS)}, or {_AUTO}")
    return FORMATS.get(name)


def _known(name: str) -> str:
    format_named(name)
    return name


class ImportConfig(Table):
    """An import; see `import_traces`."""

    format: Annotated[str, AfterValidator(_known)] = Field(
        _AUTO, description="One that kp-batch import-formats lists, or auto."
    )
    sources: tuple[str, ...] = Field(min_length=1, description="Files, folders, or URLs.")
    archive: str = Field(min_length=1, description="The archive's folder, or its URL in a bucket.")
    rules: Path | None = Field(None, description="A TOML file that decides what they do not tell.")
    max_refused: Limit = Field(None, description=MAX_REFUSED)
    max_unreadable: Limit = Field(None, description=MAX_UNREADABLE)

    @classmethod
    def read(cls, values: object, number: int) -> "ImportConfig":
        """Read the config from the values of a form, or take it as it is.

        Raises:
            SettingError: values have faults; the message lists all, and the number of the import.
        """
        return cls.checked(values, said=f"the settings of import {number} have faults: {{}}")

    def run(self) -> Imported:
        """Import; see `import_traces`."""
        form, rules = format_named(self.format), load_rules(self.rules, {})
        limits = ImportLimits(self.max_refused, self.max_unreadable)
        return import_traces(form, self.sources, self.archive, rules, limits)


def read_imports(entries: Iterable[object]) -> list[ImportConfig]:
    """Read the configs of several imports, in their order; see `ImportConfig.read`."""
    return [ImportConfig.read(entry, number) for number, entry in enumerate(entries, 1)]


def imports_of(project: Project | None) -> Sequence[Mapping[str, Any]]:
    """The values of a project's imports.

    Raises:
        SettingError: there is no project, it has no imports, or its file has faults.
    """
    found = project.imports if project else []
    if not found:
        where = f"{project.name} has no" if project else "there is no project that has"
        raise SettingError(f"nothing is named to import, and {where} [[imports]]; add some")
    return found
