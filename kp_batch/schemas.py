"""The schema of every table. Data passes between rooms as frames with these columns."""

from typing import TYPE_CHECKING, cast

import polars as pl

from kp_batch.dimensions import DIMENSIONS

if TYPE_CHECKING:
    import pyarrow as pa

STEP_TYPES = ("thought", "tool_call", "observation", "error_recovery")

TIMESTAMP = pl.Datetime("us", "UTC")


def _texts(*names: str) -> dict[str, pl.DataType]:
    return dict.fromkeys(names, pl.String())


# One trace as a Parquet archive nests it. The engine reads the fields of `ROWS`.
TRACE = pl.Schema(
    {
        **_texts("@context", "@type", "id", "source_skill"),
        "metadata": pl.Struct(
            _texts("created_at", "agent_id", "framework", "task_domain")
            | {"success": pl.Boolean(), "quality_score": pl.Float64()}
            | _texts("visibility", "privacy_level", "model", "session", "version")
        ),
        "task": pl.Struct(_texts("objective", "system", "tools")),
        "steps": pl.List(
            pl.Struct(
                {"step_id": pl.Int64(), **_texts("type", "content")}
                | {"tool": pl.Struct(_texts("name", "mcp_server"))}
                | _texts("input", "output_summary")
                | {"latency_ms": pl.Float64(), **_texts("role", "call_id")}
                | {"reasoning_chars": pl.Int64()}
            )
        ),
        "outcome": pl.Struct({**_texts("result_summary"), "confidence": pl.Float64()}),
    }
)

# Where an exported trace's score comes from: the run, its settings, and the file.
_SCORED_BY = pl.Struct(
    _texts("run_id", "encoder_id", "cache_id", "cache_group", "profile_id", "source_file")
)
# A trace as an export nests it: with the score as its quality_score.
EXPORTED = pl.Schema(
    {
        **TRACE,
        "metadata": pl.Struct(
            {
                **cast("pl.Struct", TRACE["metadata"]).to_schema(),
                "quality_score_from": _SCORED_BY,
            }
        ),
    }
)

_CARRIED = {
    "trace_id": pl.String,
    "created_at": TIMESTAMP,
    "task_domain": pl.String,
    "agent_id": pl.String,
    "framework": pl.String,
    "source_skill": pl.String,
    "success": pl.Boolean,
    "recorded_score": pl.Float64,  # the live engine's; null if there is none, 0 its placeholder
    "confidence": pl.Float64,  # in the outcome, 0..1
}

# One row of a file in the archive, unchecked, whatever the file's format.
# Steps are parallel lists without the null steps, which are only counted.
ROWS = pl.Schema(
    {
        "source_file": pl.String,
        "row": pl.Int64,  # position in its file, from 0
        "fault": pl.String,  # code of the reason why the row is not an object; null if it is one
        "type": pl.String,
        **_CARRIED,
        "objective": pl.String,
        "null_steps": pl.Int64,
        "step_types": pl.List(pl.String),
        "step_contents": pl.List(pl.String),
        "step_tools": pl.List(pl.String),
    }
)

# What depends on the trace alone, and not on others: its agent and time, three dimensions, the
# overrides whose conditions are met, and the hashes that reveal a change.
_OWN = {
    **_CARRIED,
    **dict.fromkeys(("complexity", "tool_diversity", "outcome_confidence"), pl.Float64),
    **dict.fromkeys(("single_thought", "recovery_bonus", "low_diversity_penalty"), pl.Boolean),
    "n_steps": pl.Int64,
    "n_tools": pl.Int64,
    "text_hash": pl.String,  # SHA-256 of the UTF-8 text, in hex
    "objective_hash": pl.String,  # the same for the objective alone, its first 32 digits
    "content_hash": pl.String,  # equal if all fields that affect score or text are equal
}
OWN_COLUMNS = tuple(_OWN)

# One row of a file's content, accepted or not. The file_id names the content and not the file, so
# that a file that is copied, renamed or restored is not read again.
FACTS = pl.Schema(
    {
        "file_id": pl.String,
        "row": pl.Int64,
        **_OWN,
        "reasons": pl.List(pl.String),  # the codes of its faults; empty if accepted
        "raw": pl.String,  # the row as JSON; null if accepted or not kept
    }
)

# The ledger: every file that was ever read from the archive, until it is pruned.
FILES = pl.Schema(
    {
        "source_file": pl.String,
        "status": pl.String,  # read | unreadable | gone | excluded
        "size": pl.Int64,  # bytes
        "mtime_ns": pl.Int64,  # 0 if the file system has none
        "file_id": pl.String,  # of the content in use; null if none was ever readable
        "rows": pl.Int64,  # of that content; null if there is none
        # Why it, or its end, cannot be read; empty if all of it was read.
        "reasons": pl.List(pl.String),
        "message": pl.String,
        # See `SourceFile`; empty: its content is compared again.
        "version": pl.String,
        # JSON: the keys and values of folders such as host=a above it in the archive.
        "path_keys": pl.String,
    }
)

# The result of the replay for a trace.
NOVELTY = pl.Schema(
    {
        "novelty": pl.Float64,
        "max_similarity": pl.Float64,  # null if the cache was empty
        "nearest_trace_id": pl.String,
        "nearest_age_s": pl.Float64,
        "cached_vectors": pl.Int64,
    }
)

_SCORED = {
    "profile": pl.String,
    "composite": pl.Float64,  # before the overrides
    "score": pl.Float64,
    "run_id": pl.String,  # of the run that last computed the row
    **_texts("encoder_id", "cache_id", "profile_id"),
}
SCORED_COLUMNS = tuple(_SCORED)

SCORES = pl.Schema(
    {
        "date": pl.Date,  # of created_at in UTC; the partition
        **_OWN,
        "source_file": pl.String,
        "cache_group": pl.String,  # JSON of the cache's keys and values; null: one cache for all
        **NOVELTY,
        **_SCORED,
    }
)

REJECTS = pl.Schema(
    {
        "source_file": pl.String,
        "row": pl.Int64,  # null for a whole file
        **_texts("trace_id", "task_domain"),  # null if the row has none
        "reasons": pl.List(pl.String),
        "message": pl.String,
        "raw": pl.String,  # see `FACTS`; also null for a whole file
        "run_id": pl.String,  # of the run that rejected it first
        "file_id": pl.String,  # of the content with the row; null for a whole file
    }
)

# The profiles of the settings.
PROFILES = pl.Schema(
    {
        **_texts("profile_id", "name"),
        **dict.fromkeys(DIMENSIONS, pl.Float64()),
        # The times from which it applies, ascending; null: from the beginning.
        "valid_from": pl.List(TIMESTAMP),
    }
)

RUNS = pl.Schema(
    {
        "run_id": pl.String,
        "started_at": TIMESTAMP,
        "finished_at": TIMESTAMP,
        "status": pl.String,  # done | failed
        "reason": pl.String,  # why it failed, in one line
        "note": pl.String,  # by the person who ran it, in one line; null: none
        "user": pl.String,  # who ran it: see `author.current_user`
        # These and the following ones are JSON.
        **_texts("config", "inputs", "changes", "counts", "seconds", "versions"),
        "fingerprints": pl.String,  # ids of what computed the current scores, with their counts
        "published": pl.String,  # the manifest as this run left it
        "audits": pl.String,  # `AuditResult` without the rows
    }
)

# The scores by domain at the end of a run: small, so that runs stay comparable for ever.
DISTRIBUTIONS = pl.Schema(
    {
        "run_id": pl.String,
        "task_domain": pl.String,  # null: all domains
        "traces": pl.Int64,
        "at_threshold": pl.Int64,  # number of scores at or above the run's threshold
        "mean": pl.Float64,  # to 12 decimal places
        **dict.fromkeys(("p5", "p25", "p50", "p75", "p95"), pl.Float64),
        "bins": pl.List(pl.Int64),  # the numbers of scores in ten bins of equal width
    }
)

# The SHA-256 of the ids that must never be scored again.
FORGOTTEN = pl.Schema({"id_hash": pl.String})

# Places of forgotten traces that took part in the replay of these scores: in the states of earlier
# runs, until a run replays the traces after them.
TOMBSTONES = pl.Schema({"created_at": TIMESTAMP, "cache_group": pl.String})

TABLES = {
    "scores": SCORES,
    "rejects": REJECTS,
    "profiles": PROFILES,
    "runs": RUNS,
    "files": FILES,
    "distributions": DISTRIBUTIONS,
    "facts": FACTS,
    "forgotten": FORGOTTEN,
    "tombstones": TOMBSTONES,
}
PARTITIONED_BY = {"scores": "date"}
VIEWS = ("scores", "rejects", "profiles", "runs", "files", "distributions")
GROWING = ("runs", "distributions")  # each run adds rows with its id, and removes none


def arrow_schema(schema: pl.Schema) -> "pa.Schema":
    """Return the Arrow schema of the tables that Polars makes from frames of `schema`."""
    return pl.DataFrame(schema=schema).to_arrow().schema
