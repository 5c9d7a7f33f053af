"""Which files of a Langfuse export count.

An export is a folder with a folder of each table. A run of it writes a file a table, and at last
its manifest, which names them; what a run without one has written may be cut.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kp_batch.errors import is_passing
from kp_batch.imports.model import Input, Look, Rejected
from kp_batch.limits import loads

_TABLES = ("observations_v2", "observations", "scores", "traces")
_READ = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".json.gz")
_NOT_READ = (".csv", ".csv.gz")
_FIRST_MANIFESTS = "2026-07"  # runs of the months before had none
_UNFINISHED = Rejected(["unfinished_run"], "no manifest names it: its run is not complete")
_MISSING = Rejected(["unreadable_file"], "a manifest names it, and it is not there")
_CSV = Rejected(["unreadable_file"], "CSV is not read; export Parquet or JSONL")


@dataclass
class _Export:
    """The manifests of one export."""

    files: set[str] = field(default_factory=set[str])  # that they name
    runs: list[str] = field(default_factory=list[str])  # their times

    def has(self, path: str) -> bool:
        """Whether a file is of a complete run, or of one from before there were manifests."""
        run = _run(path)
        return path in self.files or (run < _FIRST_MANIFESTS and run < min(self.runs))


def sniff(path: str, content: bytes) -> list[str] | None:
    """The files that a manifest names, or None if it is damaged; see `Format`."""
    try:
        keys: list[str] = [each["key"] for each in loads(content)["files"]]
        # They may begin with a prefix that was left behind.
        return ["/".join([_folder(path), *key.split("/")[-2:]]) for key in keys]
    except Exception:  # noqa: BLE001 (any value may stand in it)
        return None


def inputs(paths: Sequence[str], look: Look) -> Iterator[Input]:
    """See `Format`."""
    exports: dict[str, _Export] = {}
    manifests = {path for path in paths if _is_manifest(path)}
    for path in sorted(manifests):
        export = exports.setdefault(_folder(path), _Export())
        export.runs.append(_run(path))
        if (named := _named(path, look)) is not None:
            export.files |= named
        else:
            yield Input(path, refused=Rejected(["unreadable_file"], "it is no manifest"))
    for path in paths:
        if path not in manifests and path.lower().endswith(_READ + _NOT_READ):
            yield Input(path, refused=_fault(path, exports.get(_folder(path))))
    named = {path for export in exports.values() for path in export.files}
    yield from (Input(path, refused=_MISSING) for path in sorted(named.difference(paths)))


def _fault(path: str, export: _Export | None) -> Rejected | None:
    is_of_run = _table(path) in _TABLES
    if is_of_run and export and not export.has(path):
        return _UNFINISHED
    return _CSV if path.lower().endswith(_NOT_READ) else None


def _named(path: str, look: Look) -> set[str] | None:
    """The files that a manifest names; None if it is damaged, or may not be read."""
    try:
        named = look(path)
    except OSError as error:
        if is_passing(error):
            raise
        return None
    return None if named is None else set(named)


def _is_manifest(path: str) -> bool:
    return _table(path) == "manifests" and path.lower().endswith(".json")


def _folder(path: str) -> str:
    """The folder of the export."""
    return "/".join(path.split("/")[:-2])


def _table(path: str) -> str:
    return "".join(path.split("/")[-2:-1])


def _run(path: str) -> str:
    """The time that names a run's files, as a text that sorts by time."""
    return path.rpartition("/")[2].partition(".")[0]
