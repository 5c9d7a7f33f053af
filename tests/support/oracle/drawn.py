"""Archives that chance makes, and runs over them."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.make.archives import step, trace, write_jsonl
from tests.support.oracle.accepted_rows import counted, observed
from tests.support.oracle.history import History
from tests.support.oracle.scoring import Settings, Version, Weights, replayed

_WORDS = ("tea", "lamp", "river", "apple", "!", "stone", "cloud")
_KINDS = ("thought", "tool_call", "observation", "error_recovery")
_DOMAINS = ("code", "code", "medical", "legal", "finance")
_MONDAY = datetime(2026, 1, 5, tzinfo=UTC)


def drawn(folder: Path, seed: int) -> History:
    """Two runs over an archive; the recorded scores are those of a third cache, or any.

    Of every other seed the archive is large enough for a stability index.
    """
    chance, history = random.Random(seed), History(folder)
    most = 250 if seed % 2 else 50
    one, two, live = (_settings(chance) for _ in range(3))
    traces = [_trace(chance, number) for number in range(chance.randint(most - 20, most))]
    _record(chance, traces, replace(live, profiles=two.profiles))
    cut = chance.randrange(200 if seed % 2 else 1, len(traces))
    again = chance.choices(traces, k=3)
    for run, (rows, settings) in enumerate([(traces[:cut], one), (traces[cut:] + again, two)]):
        chance.shuffle(rows)
        half = len(rows) // 2
        write_jsonl(history.archive / "host=a" / f"{run}.jsonl", rows[:half])
        write_jsonl(history.archive / "host=b" / f"{run}.jsonl", rows[half:])
        history.run(settings, max_removed="100%")
    return history


def _settings(chance: random.Random) -> Settings:
    names = chance.sample(_DOMAINS, k=2)
    return Settings(
        cache_size=chance.choice([1, 2, 5, 1000]),
        ttl=chance.choice([None, timedelta(minutes=chance.choice([1, 30, 600]))]),
        cache_by=chance.choice([(), ("agent_id",), ("host",), ("agent_id", "task_domain")]),
        threshold=chance.choice([0.0, 0.4, 0.5, 0.75, 1.0]),
        profiles={name: _versions(chance) for name in names},
    )


def _versions(chance: random.Random) -> list[Version]:
    first = chance.choice([None, _MONDAY + timedelta(hours=chance.randint(0, 20))])
    later = _MONDAY + timedelta(hours=chance.randint(21, 60))
    return [(first, _weights(chance)), (later, _weights(chance))][: chance.randint(1, 2)]


def _weights(chance: random.Random) -> Weights:
    parts = [chance.choice([0, 1, 2, 5]) for _ in range(3)]
    c, n, d = (part / 20 for part in parts)
    return c, n, d, 1 - c - n - d


def _trace(chance: random.Random, number: int) -> Any:
    minutes = chance.choice([chance.randrange(200), chance.randrange(4_000)])
    words = chance.choices(_WORDS, k=chance.randint(1, 3))
    steps = [
        step(
            chance.choice(_KINDS[chance.choice([0, 0, 3]) :]),
            chance.choice([None, "", *_WORDS]),
            chance.choice([None, None, "a", "b", ""]),
        )
        for _ in range(chance.choice([1, 1, 2, 3, 4, 9, 30]))
    ]
    return trace(
        id=f"kp:trace:{chance.choice('aZé')}{number}",
        created_at=(_MONDAY + timedelta(minutes=minutes)).isoformat(),
        task_domain=chance.choice(_DOMAINS),
        agent_id=chance.choice([None, "a", "b"]),
        framework=chance.choice([None, "x"]),
        success=chance.random() < 0.7,
        objective=" ".join(words),
        confidence=chance.choice([0.0, 0.3, 0.9, 1.0]),
        steps=steps,
    )


def _record(chance: random.Random, traces: list[Any], live: Settings) -> None:
    """Give traces the scores of a live engine, placeholders, others, or none."""
    if "host" in live.cache_by:  # which no trace has yet
        live = replace(live, cache_by=())
    content = b"".join(_line(each) for each in traces)
    rows = counted(observed({}, {"a.jsonl": content}, prune=False)).accepted
    scores = {row["trace_id"]: row["score"] for row in replayed(rows, live)}
    for each in traces:
        own = chance.choice([scores[each["id"]]] * 5 + [None, 0.0, chance.random()])
        if own is not None:
            each["metadata"]["quality_score"] = own


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"
