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

# What a trace is by itself, whatever stands around it: who and when, three dimensions, the
# overrides whose conditions hold, and what tells whether it has changed.
_OWN = {
    **_TRACE,
    "complexity": pl.Float64,
    "tool_diversity": pl.Float64,
    "outcome_confidence": pl.Float64,
    "single_thought": pl.Boolean,
    "recovery_bonus": pl.Boolean,
    "low_diversity_penalty": pl.Boolean,
    "n_steps": pl.Int64,
    "n_tools": pl.Int64,
    "text_hash": pl.String,  # SHA-256 of the UTF-8 text, in hex
    "content_hash": pl.String,  # equal where all that reaches score or text is equal
}

# One row of a file's content, accepted or not. Content is known by its file_id, not by the file's
# name: a file that is copied, renamed or put back is not read again.
FACTS = pl.Schema(
    {
        "file_id": pl.String,
        "row": pl.Int64,
        **_OWN,
        "reasons": pl.List(pl.String),  # the codes of its faults; empty: accepted
    }
)

# The ledger: every file of the archive that was ever read, until it is pruned.
FILES = pl.Schema(
    {
        "source_file": pl.String,
        "status": pl.String,  # read | unreadable | gone
        "size": pl.Int64,  # bytes
        "mtime_ns": pl.Int64,  # 0 where the file system does not tell
        "file_id": pl.String,  # of the content that counts; null where none was ever readable
        "rows": pl.Int64,  # of that content
        "reasons": pl.List(pl.String),  # why it is unreadable; else empty
        "message": pl.String,
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
        **_OWN,
        "source_file": pl.String,
        **NOVELTY,
        "profile": pl.String,
        "composite": pl.Float64,  # before the overrides
        "score": pl.Float64,
        "run_id": pl.String,  # that stated the row last
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
        "raw": pl.String,  # the row as JSON; null for a whole file, and where that is gone
        "run_id": pl.String,  # that refused it first
        "file_id": pl.String,  # of the content it stands in; null for a whole file
    }
)

# Every profile that the last run loaded, and the older ones that some score still bears.
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
        "fingerprints": pl.String,  # what computed the current scores, and how many of them
        "published": pl.String,  # the manifest as this run left it
    }
)

# How the scores were distributed when a run had ended, one row per domain: small, so that all runs
# can be kept and compared.
DISTRIBUTIONS = pl.Schema(
    {
        "run_id": pl.String,
        "task_domain": pl.String,  # null: all domains
        "traces": pl.Int64,
        "worth_sharing": pl.Int64,  # how many of them reach the run's threshold
        "mean": pl.Float64,  # to 12 decimal places
        "p5": pl.Float64,
        "p25": pl.Float64,
        "p50": pl.Float64,
        "p75": pl.Float64,
        "p95": pl.Float64,
        "bins": pl.List(pl.Int64),  # how many scores fall into each of ten bins of equal width
    }
)

# The SHA-256 of the ids that must never be scored again.
FORGOTTEN = pl.Schema({"id_hash": pl.String})

TABLES = {
    "scores": SCORES,
    "rejects": REJECTS,
    "profiles": PROFILES,
    "runs": RUNS,
    "files": FILES,
    "distributions": DISTRIBUTIONS,
    "facts": FACTS,
    "forgotten": FORGOTTEN,
}
PARTITIONED_BY = {"scores": "date"}
VIEWS = ("scores", "rejects", "profiles", "runs", "files", "distributions")
