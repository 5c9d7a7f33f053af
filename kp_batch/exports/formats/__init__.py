"""The formats of exports, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from kp_batch.errors import KpBatchError
from kp_batch.exports.formats import (
    csv,
    inspect,
    langfuse,
    langsmith,
    messages,
    otel,
    phoenix,
    registry,
    traces,
)
from kp_batch.exports.formats.model import ExportFormat, FileWriter

FORMATS: Mapping[str, ExportFormat] = MappingProxyType(
    {
        "traces": traces.FORMAT,
        "messages": messages.FORMAT,
        "registry": registry.FORMAT,
        "langfuse": langfuse.FORMAT,
        "langsmith": langsmith.FORMAT,
        "phoenix": phoenix.FORMAT,
        "inspect": inspect.FORMAT,
        "otel": otel.FORMAT,
        "csv": csv.FORMAT,
    }
)


def writer_of(name: str, ending: str) -> tuple[ExportFormat, FileWriter]:
    """Return a format, and its writer of files with an ending.

    Raises:
        KpBatchError: the format has no files with this ending.
    """
    form = FORMATS[name]
    if ending not in form.files:
        raise KpBatchError(
            f"the format {name} has files that end with {' or '.join(form.files)}, not with "
            f"{ending!r}; choose another name"
        )
    return form, form.files[ending]
