"""Scores one trace at a time, as the live engine does."""

import threading
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from typing import Any

import polars as pl

from kp_batch.archive.formats.json import rows_from_objects
from kp_batch.archive.validation import fault_sentence, reasons
from kp_batch.embedding.encoders import Encoder, load_encoder
from kp_batch.errors import TraceError
from kp_batch.novelty.cache import NO_NEIGHBOUR, VectorCache, novelty
from kp_batch.scoring.composite import assign, composite, score, scores_by_profile
from kp_batch.scoring.facts import with_facts
from kp_batch.scoring.profiles import load_profiles

# A single trace is scored at `now`: its score depends neither on its id nor on its created_at.
NOT_NEEDED = frozenset({"missing_id", "bad_created_at"})
_lock = threading.Lock()


def evaluate_value(trace: Mapping[str, Any], now: datetime | None = None) -> float:
    """Score one trace against the traces that this process scored before it.

    Each call adds the trace's vector to the process's cache (1,000 vectors, no time to live): the
    same trace again meets itself, and scores less. `reset` empties the cache. Novelty is 0.5 for
    the first trace, and always where sentence-transformers is not installed.

    Args:
        trace: a reasoning trace as a mapping; id and created_at are not needed.
        now: the time of the call, the wall clock unless given; a time without a zone is UTC.

    Returns:
        The score, in 0..1.

    Raises:
        TraceError: the trace cannot be scored; `reasons` holds the codes of all its faults.
        EncoderError: the model cannot be loaded.
        ValueError: `now` is before an earlier call's.
    """
    frame = _facts_of(trace)
    with _lock:  # the clock is read inside, or another thread's later call could come first
        moment = datetime.now(UTC) if now is None else now
        value = _novelty(frame, moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    versions = load_profiles()  # the built-in ones, which hold at all times
    return (
        frame.with_columns(assign(versions), novelty=pl.lit(value))
        .with_columns(composite(versions.profiles))
        .select(score())
        .item()
    )


def compare_profiles(trace: Mapping[str, Any]) -> dict[str, float]:
    """Score a trace under every built-in profile, whatever its domain. The cache stays as it is.

    A trace that `evaluate_value` has scored finds itself there: compare first.

    Raises:
        TraceError, EncoderError: as for `evaluate_value`.
    """
    frame = _facts_of(trace)
    with _lock:
        value = _novelty(frame, None)
    in_force = load_profiles().at(datetime.now(UTC))
    return scores_by_profile(frame.with_columns(novelty=pl.lit(value)), in_force)[0]


def reset() -> None:
    """Forget every trace that `evaluate_value` has scored, and their times, as a new process has.

    The model stays loaded.
    """
    with _lock:
        _cache().clear()


def _facts_of(trace: Mapping[str, Any]) -> pl.DataFrame:
    frame = with_facts(rows_from_objects("", [(0, trace)]), reasons())
    faults = [code for code in frame.item(0, "reasons") if code not in NOT_NEEDED]
    if faults:
        sentences = "; ".join(f"{code}: {fault_sentence(code, trace)}" for code in faults)
        raise TraceError(f"the trace cannot be scored ({sentences})", tuple(faults))
    return frame


def _novelty(frame: pl.DataFrame, moment: datetime | None) -> float:
    """The trace's novelty at a moment, when the cache takes its vector.

    With None it is the novelty at the moment of the last trace, and the cache stays as it is.
    """
    encoder = _encoder()
    if encoder is None:
        return NO_NEIGHBOUR
    vector = encoder.encode([frame.item(0, "text")])[0]
    similarity = _cache().max_cosine_similarity(vector, moment)
    if moment is not None:
        _cache().add(vector, moment)
    return NO_NEIGHBOUR if similarity is None else float(novelty(similarity))


@cache
def _encoder() -> Encoder | None:
    if find_spec("sentence_transformers") is None:
        warnings.warn("sentence-transformers is not installed: every novelty is 0.5", stacklevel=2)
        return None
    return load_encoder("minilm")


@cache
def _cache() -> VectorCache:
    return VectorCache()
