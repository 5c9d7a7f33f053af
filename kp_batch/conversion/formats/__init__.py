"""All formats."""

import copyreg
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import cache, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from kp_batch.conversion import model
from kp_batch.conversion.formats import (
    atif,
    claude_code,
    codex,
    inspect,
    knowledgepulse,
    langfuse,
    langsmith,
    messages,
    mlflow,
    otlp,
    phoenix,
    pi,
)
from kp_batch.conversion.formats.json_files import beginning
from kp_batch.conversion.model import Format, Input, LocalPath, Read, Refused, SourceRecord
from kp_batch.errors import KpBatchError, is_of_machine, is_passing

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        module.FORMAT.name: module.FORMAT
        for module in (
            *(atif, claude_code, codex, inspect, knowledgepulse),
            *(langfuse, langsmith, messages, mlflow, otlp, phoenix, pi),
        )
    }
)
_FILES = 5  # files to try
_RECORDS = 5  # records to read from each
_PROBES = 100  # files to probe when choosing them


def _format_of(name: str) -> Format:
    return FORMATS[name]


# Other processes have the same formats, by their names.
copyreg.pickle(Format, lambda form: (_format_of, (form.name,)))


def detect_format(paths: Sequence[str], read: Read, local_path: LocalPath) -> Format:
    """Return the only format whose traces the first readable files contain.

    The beginnings of JSON files are enough, or else the whole files are read.

    Args:
        paths: paths of the source's files.
        read: returns the first `HEAD_BYTES` of a file.
        local_path: returns the path of a file on this machine.

    Raises:
        KpBatchError: there is no such format, or more than one.
        OSError: there is none, and files could not be read; or a disk or the network failed, and
            a retry may succeed, see `is_passing`.
    """
    denied: list[OSError] = []
    found: list[Format] = []
    for opened in (partial(_beginning_of, read=read, local_path=local_path), local_path):
        try:
            found = _matching(paths, read, opened, denied)
        except OSError as error:
            raise _unreachable(error) from error
        if len(found) == 1:
            return found[0]
    if denied and not found:
        raise _unreachable(denied[0])
    if not found:
        known = ", ".join(FORMATS)
        raise KpBatchError(
            f"unknown source format: this version reads {known}; check the path, or convert it to "
            "one of these"
        )
    which = " or ".join(form.name for form in found)
    raise KpBatchError(f"the source may be {which}; name the format instead of auto")


@contextmanager
def _beginning_of(path: str, read: Read, local_path: LocalPath) -> Generator[Path]:
    """Yield a short file that begins as a long file of JSON does; or else the file itself."""
    head = read(path)
    content = beginning(path, head) if len(head) >= model.HEAD_BYTES else b""
    if not content:
        with local_path(path) as file:
            yield file
        return
    with TemporaryDirectory(prefix="kp-import-") as folder:
        file = Path(folder, path.rpartition("/")[2])
        file.write_bytes(content)
        yield file


def _matching(
    paths: Sequence[str], read: Read, local_path: LocalPath, denied: list[OSError]
) -> list[Format]:
    """Return the formats that the first files have records of; each file is fetched once."""
    with ExitStack() as stack:

        @cache
        def once(path: str) -> AbstractContextManager[Path]:
            return nullcontext(stack.enter_context(local_path(path)))

        return [form for form in FORMATS.values() if _matches(form, paths, read, once, denied)]


def _matches(
    form: Format, paths: Sequence[str], read: Read, local_path: LocalPath, denied: list[OSError]
) -> bool:
    if form is otlp.FORMAT:  # MLflow's archives are OTLP, too
        paths = [path for path in paths if not path.endswith(mlflow.ARCHIVED)]
    probes = iter(range(_PROBES))

    def probe_file(path: str) -> object:
        return form.probe(path, read(path) if next(probes, None) is not None else b"")

    with _passing_over(denied):
        inputs = form.inputs(paths, probe_file)
        readable = islice((file for file in inputs if not file.refused), _FILES)
        return any(_has_records(form, file, local_path, denied) for file in readable)
    return False


def _has_records(form: Format, file: Input, local_path: LocalPath, denied: list[OSError]) -> bool:
    with _passing_over(denied), closing(form.read(file, local_path)) as items:
        kinds = Counter(map(type, islice(items, _RECORDS)))
        # A single line may resemble one of another format.
        return kinds[SourceRecord] > kinds[Refused]
    return False


@contextmanager
def _passing_over(denied: list[OSError]) -> Generator[None]:
    """Ignore errors of damage, or of another format; collect the system's errors."""
    try:
        yield
    except Exception as error:
        if is_passing(error) or is_of_machine(error):
            raise
        if isinstance(error, OSError) and error.errno:
            denied.append(error)


def _unreachable(error: OSError) -> OSError:
    message = f"the source cannot be reached: {error.strerror}"
    return OSError(error.errno, message, error.filename)
