"""An archive in which nothing is as one would like it, and runs over it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.make.archives import step, trace, write_jsonl, write_parquet
from tests.support.oracle.history import History
from tests.support.oracle.scoring import Settings, facts, weighted

_THOUGHT = [step("thought", "so it is")]
_PAIR = [step("thought", "look at it"), step("tool_call", "run it", "python")]
_TOOLS = [
    *(step("tool_call", "search", "search"), step("observation", "found", "browser")),
    *(step("thought", None), step("tool_call", "", "")),
]
_SILENT = [step("observation"), step("tool_call")]
_MENDED = [step("error_recovery", f"try {n}") for n in range(3)]
_MENDED_BY_ONE = [step("error_recovery", "again", "editor")] * 4
_EVERYTHING = [
    *(step("thought", "plan"), step("observation", "seen", "eyes"), step("tool_call", "do", "a")),
    *(step("error_recovery", "mend", f"tool {n}") for n in range(4)),
]
_MANY = [step("thought", "on"), step("tool_call", "go", "a")] * 15


def made(at: str, objective: str, steps: Sequence[Any] = tuple(_PAIR), **more: Any) -> Any:
    """A trace of that minute of January 2026, `05T08:00`; its other fields by name."""
    marks = {name: more.pop(name) for name in ("visibility", "privacy_level") if name in more}
    own = trace(
        **{"id": f"kp:trace:{at}", "agent_id": "a", "task_domain": "code", **more},
        created_at=f"2026-01-{at}:00Z",
        objective=objective,
        steps=list(steps),
    )
    own["metadata"] |= marks
    return own


def met_empty(own: Any, settings: Settings, by: float = 0.0) -> Any:
    """The trace with the score that a live engine with an empty cache gave it, or one near it."""
    own["metadata"]["quality_score"] = score_if_empty(own, settings) + by
    return own


def score_if_empty(own: Any, settings: Settings) -> float:
    """The score of a trace that meets an empty cache."""
    when = datetime.fromisoformat(own["metadata"]["created_at"])
    row = {**facts(own), "novelty": 0.5, "created_at": when}
    return float(weighted(row, settings)["score"])


HASHING = Settings(threshold=0.6)
_WEIGHTED = Settings(
    cache_size=3,
    ttl=timedelta(hours=1),
    cache_by=("agent_id",),
    threshold=0.45,
    profiles={
        "code": [
            (None, (0.25, 0.25, 0.25, 0.25)),
            (datetime(2026, 1, 6, tzinfo=UTC), (0.4, 0.2, 0.2, 0.2)),
        ],
        "legal": [(datetime(2026, 1, 6, 8, 30, tzinfo=UTC), (0.1, 0.2, 0.1, 0.6))],
        "finance": [(datetime(2026, 1, 7, tzinfo=UTC), (0.5, 0.0, 0.25, 0.25))],
    },
)

# The only one of its agent: it meets an empty cache, and its score is the threshold to the bit.
_AT_THE_THRESHOLD = made("06T08:33", "Weigh the ship", agent_id="f", confidence=0.3)
GROUPED = replace(_WEIGHTED, threshold=score_if_empty(_AT_THE_THRESHOLD, _WEIGHTED))

PRUNED = Settings(cache_size=1, cache_by=("host",), threshold=0.45)


def _first() -> list[Any]:
    return [
        made("05T08:00", "Fix the import", id="kp:trace:z", confidence=0.9, quality_score=0.31),
        # The same text, time and score, under another objective.
        made(
            "05T08:00", "Fix the", [step("thought", "import look at it"), _PAIR[1]], id="kp:trace:é"
        ),
        made("05T08:00", "Fix the import", id="kp:trace:Z", agent_id="b", framework=None),
        made("05T08:00", "Fix the import now", id="kp:trace:😀", agent_id=None, success=False),
        made("05T08:30", "!", [step("thought", "?"), step("observation")], confidence=1.0),
        made("05T08:31", "...", [step("thought", None)] * 2, agent_id="b", quality_score=0.7),
        made("05T08:32", "Count the money", _THOUGHT, task_domain="finance", quality_score=0.1),
        made("05T09:00", "Count the money twice", _TOOLS, task_domain="finance", success=False),
        made("05T09:00", "Mend it", _MENDED, id="kp:trace:A", confidence=1.0, source_skill="mend"),
        made("05T09:30", "Mend it", _MENDED_BY_ONE, confidence=1.0, visibility="org"),
        made("05T09:31", "Mend it all", _EVERYTHING, confidence=1.0, quality_score=1.0),
        made("05T10:00", "Read the scan", task_domain="medical", privacy_level="private"),
    ]


def _second() -> list[Any]:
    return [
        made("06T08:00", "Read the scan", task_domain="medical", privacy_level="federated"),
        made("06T08:00", "Read the scan", _MANY, id="kp:trace:06", task_domain="medical"),
        made("06T08:30", "Sum up the contract", task_domain="legal", agent_id="c"),
        made("06T08:31", "Sum up the contract", task_domain="Legal", visibility="private"),
        made("06T08:32", "Sum up the contract", _TOOLS, task_domain="legal", quality_score=0.0),
        _AT_THE_THRESHOLD,
        met_empty(made("06T08:40", "Fix the import", agent_id="b"), HASHING),
        met_empty(made("06T08:41", "Fix the import", framework="x"), HASHING, by=5e-7),
        met_empty(made("06T08:42", "Fix the import"), HASHING, by=2e-6),
        made("06T09:41", "Fix the import", confidence=0.0, success=False, steps=[_PAIR[1]]),
        # Opposite vectors, met by themselves, and beside one of zeros.
        made("06T10:00", "dog", _SILENT, agent_id="d"),
        made("06T10:01", "sugar", _SILENT, agent_id="d"),
        made("06T10:20", "!", _SILENT, agent_id="e"),
        made("06T10:21", "engine", _SILENT, agent_id="e"),
        made("06T10:22", "bean", _SILENT, agent_id="e"),
        # At the bounds of the overrides, and beyond.
        made("06T09:50", "Mend it", _MENDED_BY_ONE, confidence=1.0, quality_score=0.9),
        made("06T09:51", "Mend it", _MENDED_BY_ONE, confidence=1.0, quality_score=0.95),
        made("06T09:52", "Mend it", _MENDED_BY_ONE, confidence=0.1, quality_score=0.85),
        made("06T09:53", "Look", _TOOLS[:1], quality_score=1.0, confidence=1.0),
        made("06T09:54", "Look", _PAIR[:1] * 2, quality_score=1.0, confidence=1.0),
        made("06T09:42", "Fix the import", agent_id=None, framework=None, confidence=0.9),
    ]


def _third() -> list[Any]:
    return [
        made("08T23:59", "Alone in its domain", task_domain="solo", framework="x"),
        made("09T00:00", "Count the money", _THOUGHT, task_domain="finance", quality_score=0.7),
        made("09T00:03", "Count the money", task_domain="finance", quality_score=0.7),
        met_empty(made("09T00:01", "Fix the import", agent_id="b"), GROUPED),
        met_empty(made("09T00:02", "Fix the import again", agent_id="b"), GROUPED),
        made("11T12:00", "Fix it on a Sunday", success=False),
        made("14T12:00", "Fix the import again", confidence=0.31, visibility="network"),
    ]


def _faulty() -> list[Any]:
    return [
        {**made("07T08:00", "no id"), "id": None},
        made("07T08:01", "", confidence=1.5),
        made("07T08:02", "no step", []),
        made("07T08:03", "dreams", [step("dream")], type="KnowledgeUnit"),
        made("07T08:04", "never", task_domain="") | {"id": "kp:trace:never"},
        b'{"id": "kp:trace:cut", "metadata": {"crea',
    ]


def ugly(folder: Path) -> History:
    """Make the archive, and run over it: what the runs change is said beside them."""
    history = History(folder)
    archive = history.archive
    two, moved = archive / "host=b" / "two.jsonl", archive / "host=%2Fb" / "two.jsonl"
    write_jsonl(archive / "host=a" / "one.jsonl", [*_first()[:-4], *_faulty()[:4]])
    write_jsonl(archive / "host=a" / "gone.jsonl", _first()[-4:])
    write_jsonl(archive / "pruned.jsonl", [made("05T07:00", "Begin"), made("05T12:00", "Eat")])
    write_parquet(archive / "cut.parquet", [made("05T11:00", "Cut the file", confidence=1.0)])
    history.run(Settings(embedder="none"))
    # Ids in two files, with the same and with other content; and a file of nothing.
    again = [_first()[0], made("05T08:30", "!!", agent_id="b")]
    write_jsonl(two, [*_second(), *again, *_faulty()[4:]])
    (archive / "empty.jsonl").write_bytes(b"")
    history.run(HASHING)
    history.fail(HASHING, max_reject_share=0)
    # A file that was moved, and one that is gone for good.
    two.parent.rename(moved.parent)
    (archive / "pruned.jsonl").unlink()
    history.run(PRUNED, prune=True)
    # A file that is gone, one that is cut, one that is late, another cache, and weights with dates.
    (archive / "host=a" / "gone.jsonl").unlink()
    (archive / "cut.parquet").write_bytes((archive / "cut.parquet").read_bytes()[:-9])
    write_jsonl(archive / "late.jsonl", _third())
    mended = made("05T09:00", "Mend it well", _MENDED, id="kp:trace:A")
    write_jsonl(archive / "mended.jsonl", [mended])
    history.run(GROUPED)
    # No run has seen this yet.
    changed = [*_third()[:-1], made("14T12:00", "Fix the import once more", visibility="network")]
    write_jsonl(archive / "late.jsonl", changed)
    return history
