"""Inspect's logs, `.json` and `.eval`, and Scout's transcripts in Parquet."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from kp_batch.bounded_json import TooLargeError
from kp_batch.file_faults import UnreadableError
from kp_batch.imports.conversation.messages import Json
from kp_batch.imports.formats import scout
from kp_batch.imports.formats.eval_file import EvalFile
from kp_batch.imports.formats.inspect_samples import Log, draft, record_of
from kp_batch.imports.formats.json_files import read_json
from kp_batch.imports.model import Format, Rejected, Skipped, SourceRecord, by_ending


def units(path: Path, _: Sequence[Path]) -> Iterator[SourceRecord | Rejected | Skipped]:
    """See `Format`: each sample is a unit, and each transcript."""
    name = path.name.lower()
    if name.endswith(".parquet"):
        yield from scout.units(path)
    elif name.endswith(".eval"):
        with EvalFile(path) as file:
            log = Log.of(file.header)
            yield from (_unit(log, each) for each in file.samples())
    else:
        content = _log(read_json(path))
        log = Log.of(content)
        yield from (_unit(log, each) for each in content.get("samples") or ())


def _log(content: object) -> Json:
    if isinstance(content, dict):
        log = cast("Json", content)
        if isinstance(log.get("eval"), dict) and isinstance(log.get("samples") or [], list):
            return log
    raise UnreadableError("it is no Inspect log: it does not tell of an eval")


def _unit(log: Log, found: object) -> SourceRecord | Rejected:
    if isinstance(found, Rejected):
        return found
    if not isinstance(found, dict):
        return Rejected(["malformed_json"], "a sample that is no JSON object")
    sample = cast("Json", found)
    name = sample.get("uuid") or log.name_of(sample)
    if not name:
        return Rejected(["missing_id"], "a sample without an id")
    try:
        return SourceRecord(str(name), record_of(sample, log))
    except TooLargeError:
        return SourceRecord(str(name), None)


FORMAT = Format(
    name="inspect",
    holds="scores by scorer; task, dataset, model, tags, metadata.KEY (Scout: its columns)",
    inputs=by_ending(".eval", ".json", ".parquet"),
    units=units,
    draft=draft,
    source="document",
)
