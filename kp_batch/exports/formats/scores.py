"""What the scores for all systems share: name, id, time, origin and native ids."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5

from kp_batch.exports.formats.model import ChosenTrace, Row
from kp_batch.ingest.reread import Trace

NAME = "kp_batch.score"
ELSEWHERE = "from another system"
_PREFIX = "kp:trace:"
_ORIGIN = ("scoring_id", "encoder_id", "cache_id", "profile_id", "run_id")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NativeIds(NamedTuple):
    """The ids of a trace in its own system; '' or None if one is missing."""

    system: str  # the format of the import
    trace: str
    root: str
    log: str
    sample: str
    epoch: int | None

    @classmethod
    def of(cls, trace_id: str, trace: Trace) -> "NativeIds":
        """Read them from the column that imports write; elsewhere it may have any value."""
        found = trace.get("native")
        native: Row = found if isinstance(found, dict) else {}

        def text(name: str) -> str:
            return value if isinstance(value := native.get(name), str) else ""

        epoch = native.get("epoch")
        return cls(
            system=text("system"),
            trace=native_id(trace_id),
            root=text("root"),
            log=text("log"),
            sample=text("sample"),
            epoch=epoch if type(epoch) is int else None,
        )

    def is_of(self, *systems: str) -> bool:
        """Whether it comes from one of these systems, or does not name its system."""
        return self.system in ("", *systems)


def native_id(trace_id: str) -> str:
    """Return the id of a trace in its own system."""
    return trace_id.removeprefix(_PREFIX)


def score_id(trace_id: str) -> str:
    """Return the id of a trace's score: the UUID (version 5, URL) of `ID#kp_batch.score`."""
    return str(uuid5(NAMESPACE_URL, f"{trace_id}#{NAME}"))


def origin_of(scored: ChosenTrace) -> Row:
    """Return the ids of what computed a score."""
    return {name: getattr(scored, name) for name in _ORIGIN}


def time_of(scored: ChosenTrace) -> str:
    """Return the time of a trace as ISO 8601, in UTC."""
    time = _EPOCH + timedelta(microseconds=scored.created_at)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
