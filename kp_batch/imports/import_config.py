"""The settings of an import, as options of the command line and as Prefect's form."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import load_rules
from kp_batch.errors import SettingError
from kp_batch.imports.import_limits import ImportLimits
from kp_batch.imports.importing import import_traces
from kp_batch.imports.summary import Imported
from kp_batch.project import ProjectFile
from kp_batch.settings import SettingsModel

_AUTO = "auto"


def _known(name: str) -> str:
    """Check a format's name; it may be auto, which `import_traces` resolves."""
    if name not in (*FORMATS, _AUTO):
        raise ValueError(f"{name!r} is none of {', '.join(FORMATS)}, or {_AUTO}")
    return name


class ImportSource(SettingsModel):
    """What an import reads, and where it writes."""

    format: Annotated[str, AfterValidator(_known)] = Field(
        _AUTO, description="One that kp-batch import-formats lists, or auto."
    )
    sources: tuple[str, ...] = Field(min_length=1, description="Files, folders, or URLs.")
    archive: str = Field(min_length=1, description="The archive's folder, or its URL in a bucket.")
    rules: Path | None = Field(None, description="A TOML file of rules for what they lack.")


class ImportConfig(ImportLimits, ImportSource):
    """An import; see `import_traces`."""

    @classmethod
    def read(cls, values: object, number: int) -> "ImportConfig":
        """Read the config from the values of a form, or return it unchanged.

        Raises:
            SettingError: values have faults; the message lists all, with the import's number.
        """
        return cls.checked(values, said=f"the settings of import {number} have faults: {{}}")

    def run(self, rules: Mapping[str, Any] | None = None) -> Imported:
        """Run the import; see `import_traces`.

        Args:
            rules: tables that override those of the file.
        """
        decided = load_rules(self.rules, rules or {})
        return import_traces(
            FORMATS.get(self.format), self.sources, self.archive, decided, limits=self
        )


def read_imports(entries: Iterable[object]) -> list[ImportConfig]:
    """Read the configs of several imports, in their order; see `ImportConfig.read`."""
    return [ImportConfig.read(entry, number) for number, entry in enumerate(entries, 1)]


def imports_of(project: ProjectFile | None) -> Sequence[Mapping[str, Any]]:
    """Return the values of a project's imports.

    Raises:
        SettingError: there is no project, it has no imports, or its file has faults.
    """
    found = project.imports if project else []
    if not found:
        where = f"{project.name} has no" if project else "no project file has"
        raise SettingError(
            f"nothing to import: {where} [[imports]]; add some, or name a format and its sources"
        )
    return found
