"""Every table's schema, once. Data passes between rooms as frames of these columns."""

import polars as pl

STEP_TYPES = ("thought", "tool_call", "observation", "error_recovery")
DIMENSIONS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")

TIMESTAMP = pl.Datetime("us", "UTC")

_TRACE = {
    "trace_id": pl.String,
    "created_at": TIMESTAMP,
    "task_domain": pl.String,
    "agent_id": pl.String,
    "framework": pl.String,
    "success": pl.Boolean,
}

# One row of the archive as its file gave it, whatever the file's format: nothing checked yet.
# Steps stand as parallel lists without the null steps, which are only counted.
ROWS = pl.Schema(
    {
        "source_file": pl.String,
        "row": pl.Int64,  # from 0, within its file
        "is_object": pl.Boolean,  # false for a JSONL line that is no JSON object
        "type": pl.String,
        **_TRACE,
        "confidence": pl.Float64,
        "objective": pl.String,
        "null_steps": pl.Int64,
        "step_types": pl.List(pl.String),
        "step_contents": pl.List(pl.String),
        "step_tools": pl.List(pl.String),
    }
)

# What a trace is known by and what its steps come to.
FACTS = pl.Schema(
    {
        "source_file": pl.String,
        "row": pl.Int64,
        **_TRACE,
        "confidence": pl.Float64,
        "n_steps": pl.Int64,
        "n_types": pl.Int64,
        "n_thoughts": pl.Int64,
        "n_recoveries": pl.Int64,
        "n_tool_steps": pl.Int64,
        "n_tools": pl.Int64,
        "text_hash": pl.String,  # SHA-256 of the UTF-8 text, in hex
        "content_hash": pl.String,  # equal where all that reaches score or text is equal
        "text": pl.String,
        "reasons": pl.List(pl.String),  # the codes of its faults; empty: accepted
    }
)

NOVELTY = pl.Schema(
    {
        "novelty": pl.Float64,
        "max_similarity": pl.Float64,  # null where the cache was empty
        "nearest_trace_id": pl.String,
        "nearest_age_s": pl.Float64,
        "cache_size": pl.Int64,
    }
)

SCORES = pl.Schema(
    {
        "date": pl.Date,  # of created_at in UTC; the partition
        **_TRACE,
        "profile": pl.String,
        "complexity": pl.Float64,
        "novelty": pl.Float64,
        "tool_diversity": pl.Float64,
        "outcome_confidence": pl.Float64,
        "composite": pl.Float64,  # before the overrides
        "single_thought": pl.Boolean,
        "recovery_bonus": pl.Boolean,
        "low_diversity_penalty": pl.Boolean,
        "score": pl.Float64,
        "max_similarity": pl.Float64,
        "nearest_trace_id": pl.String,
        "nearest_age_s": pl.Float64,
        "cache_size": pl.Int64,
        "n_steps": pl.Int64,
        "n_tools": pl.Int64,
        "text_hash": pl.String,
        "source_file": pl.String,
        "run_id": pl.String,
        "encoder_id": pl.String,
        "cache_id": pl.String,
        "profile_id": pl.String,
    }
)

REJECTS = pl.Schema(
    {
        "source_file": pl.String,
        "row": pl.Int64,  # null for a whole file
        "trace_id": pl.String,
        "reasons": pl.List(pl.String),
        "message": pl.String,
        "raw": pl.String,  # the row as JSON; null for a whole file
        "run_id": pl.String,
    }
)

PROFILES = pl.Schema(
    {
        "profile_id": pl.String,
        "name": pl.String,
        "complexity": pl.Float64,
        "novelty": pl.Float64,
        "tool_diversity": pl.Float64,
        "outcome_confidence": pl.Float64,
    }
)

RUNS = pl.Schema(
    {
        "run_id": pl.String,
        "started_at": TIMESTAMP,
        "finished_at": TIMESTAMP,
        "status": pl.String,  # done | failed
        "reason": pl.String,  # why it failed, in one line
        "config": pl.String,  # this and the following as JSON
        "inputs": pl.String,
        "counts": pl.String,
        "seconds": pl.String,
        "versions": pl.String,
        "published": pl.String,  # the manifest as this run left it
    }
)

TABLES = {"scores": SCORES, "rejects": REJECTS, "profiles": PROFILES, "runs": RUNS}
PARTITIONED_BY = {"scores": "date"}
