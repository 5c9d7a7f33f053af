"""`kp_batch.score`: score a frame of traces, without a warehouse."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Self

import polars as pl

from kp_batch.archive.file_formats.json import MALFORMED_JSON
from kp_batch.archive.validation import SUPERSEDED
from kp_batch.config import RescoreConfig
from kp_batch.errors import SettingError
from kp_batch.novelty.cache_settings import check_cache_by
from kp_batch.operations.score_archive import ScoredRows, score_archive
from kp_batch.python.calls import Profiles, Traces, called, config_of
from kp_batch.python.frames import take
from kp_batch.schemas import REJECTS, SCORES
from kp_batch.stopping import interruptible
from kp_batch.text import be, count_of
from kp_batch.warehouse.lazy import warming_up

_COUNTED = ("rows", "accepted", "duplicates", "superseded", "rejected")
# The columns of the view `scores` that mean something without a warehouse, in its order.
COLUMNS = (
    *("trace_id", "created_at", "task_domain", "agent_id", "framework", "source_skill"),
    *("success", "confidence", "profile"),
    *("complexity", "novelty", "tool_diversity", "outcome_confidence", "composite"),
    *("single_thought", "recovery_bonus", "low_diversity_penalty", "score", "meets_threshold"),
    *("recorded_score", "max_similarity", "nearest_trace_id", "nearest_age_s", "cached_vectors"),
    *("cache_group", "cache_warming_up", "n_steps", "n_tools", "text_hash", "objective_hash"),
    *("encoder_id", "cache_id", "profile_id"),
)
_REJECTED = ("trace_id", "task_domain", "reasons", "message", "raw")


class ScoredFrame(pl.DataFrame):
    """The scores of traces: a polars frame, with the rejected rows as an attribute.

    `filter`, `head` and other methods return plain `polars.DataFrame`s.

    Attributes:
        rejects: a `polars.DataFrame` of the rows without a score, and of unreadable files, with the
            columns of the view `rejects` except `run_id`; `source_file` only if `traces` are files.
        counts: numbers of rows: `rows` (all), `accepted` (with a score), `duplicates` (the same
            trace again), `superseded` (by a later row of the same id), `rejected`.
        warnings: sentences about other problems, such as a profile that applies to no trace.

    Examples:
        >>> scored = kp.score("archive", embedder="hashing")
        >>> scored.rejects.height, scored.counts["accepted"]
        (0, 600)
    """

    rejects: pl.DataFrame = pl.DataFrame()
    counts: Mapping[str, int] = MappingProxyType({})
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        scores: pl.DataFrame,
        rejects: pl.DataFrame,
        counts: Mapping[str, int],
        warnings: Iterable[str] = (),
    ) -> Self:
        """Return a frame of scores with its attributes.

        Examples:
            >>> best = scored.sort("score").tail(3)
            >>> kp.ScoredFrame.of(best, scored.rejects, scored.counts).height
            3
        """
        frame = cls(scores)
        frame.rejects, frame.counts, frame.warnings = rejects, {**counts}, tuple(warnings)
        return frame

    @classmethod
    def _from_pydf(cls, py_df: Any) -> pl.DataFrame:
        """Let Polars' methods return plain frames, without rejects."""
        return pl.DataFrame._from_pydf(py_df)  # noqa: SLF001 (its own name for this)

    def __copy__(self) -> Self:
        return self.of(pl.DataFrame(self), self.rejects, self.counts, self.warnings)

    def __deepcopy__(self, memo: None = None) -> Self:  # frames never change
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        plain = pl.DataFrame(self)
        return type(self).of, (plain, self.rejects, self.counts, self.warnings)

    def __str__(self) -> str:  # which is also what `repr` gives
        return "\n".join((*self._summary(), super().__str__()))

    def _repr_html_(self, **options: Any) -> str:
        lines = "<br>".join(map(escape, self._summary()))
        return f"<div>{lines}</div>{super()._repr_html_(**options)}"

    def _summary(self) -> list[str]:
        """How many rows have a score, why others have none, and the warnings."""
        if not self.counts:  # it is made by Polars
            return []
        scored, rows, duplicates = (
            self.counts[name] for name in ("accepted", "rows", "duplicates")
        )
        parts = [f"{scored:,} of {count_of(rows, 'row')} {be(scored)} scored"]
        if why := _by_code(self.rejects):
            parts.append(f"{count_of(len(self.rejects), 'reject')} ({why})")
        if duplicates:
            parts.append(f"{count_of(duplicates, 'duplicate')} of the same content")
        return ["; ".join(parts), *(f"warning: {warning}" for warning in self.warnings)]


@interruptible
def score(  # noqa: PLR0913 (the settings of a run)
    traces: Traces,
    *,
    embedder: str = "minilm",
    precision: str = "float32",
    profiles: Profiles | None = None,
    cache_size: int = 1_000,
    ttl: str | timedelta | None = None,
    cache_by: str | Sequence[str] | None = None,
    threshold: float = 0.75,
    progress: bool = False,
) -> ScoredFrame:
    """Score traces as a run does, each at its own time, without a warehouse.

    In the order of `(created_at, id)`, the traces pass through a cache of vectors, empty at first::

        novelty = 1 - max(0, greatest cosine similarity to a vector in the cache)
                  (0.5 if the cache is empty or there is no embedder)
        score   = complexity * wC + novelty * wN + tool_diversity * wD + outcome_confidence * wO

    The weights are those of the trace's profile. Then the overrides apply. A run over one file
    with these rows gives the same scores, bit for bit. If rows share an id, the last one counts.

    Args:
        traces: rows with the fields of an archive, nested as there: a polars, pandas or Arrow frame
            (anything with `__arrow_c_stream__`), also lazy; mappings, such as a list of dicts; or
            files, folders, globs or URLs.
        embedder: `minilm`, `hashing`, `none`, or a sentence-transformers folder or id.
        precision: how the model computes: `float32` or `bf16`.
        profiles: see `Session`.
        cache_size: how many vectors a cache holds, at least 1.
        ttl: how long a vector stays in a cache: a text such as `"7d"`, or a `timedelta` of whole
            seconds; None: no limit.
        cache_by: which traces share a cache, such as `"agent_id"`, or a list of names; None: all.
        threshold: the score that traces must reach, 0 to 1.
        progress: whether to show progress bars, in a notebook or on stderr.

    Returns:
        A row for each scored trace, in the order of the replay: its `row` in `traces`, from 0 (for
        files, `source_file` and its row there), and the columns of the view `scores` except
        `run_id`. Scores are from 0 to 1, times in UTC, in microseconds.

    Raises:
        SettingError: a setting or the kind of `traces` is invalid.
        ProfileError: the profiles have faults.
        ArchiveError: a column is missing or of a wrong type, or a path has no file.
        EncoderError: the model cannot be loaded.

    Examples:
        >>> import kp_batch as kp
        >>> trace = {
        ...     "id": "kp:trace:1",
        ...     "metadata": {"created_at": "2026-01-05", "task_domain": "code", "success": True},
        ...     "task": {"objective": "Fix the import"},
        ...     "steps": [{"type": "tool_call", "tool": {"name": "editor"}}],
        ...     "outcome": {"confidence": 0.8},
        ... }
        >>> scored = kp.score([trace, {**trace, "id": None}], embedder="hashing")
        >>> scored.select("row", "novelty", scored["score"].round(3)).rows()
        [(0, 0.5, 0.537)]
        >>> scored.rejects.select("row", "message").rows()
        [(1, 'id is null')]
    """
    settings = {
        "embedder": embedder,
        "precision": precision,
        "profiles": profiles,
        "cache_size": cache_size,
        "ttl": ttl,
        "cache_by": cache_by,
        "threshold": threshold,
    }
    _check_given(settings)
    with called(progress=progress) as warnings, TemporaryDirectory(prefix="kp-batch-") as folder:
        warehouse = Path(folder) / "warehouse"
        config = config_of({"warehouse": warehouse, **settings})
        taken = take(traces, Path(folder))
        if taken is None:
            check_cache_by(config.cache_by, (), named="cache_by")
            return _framed(_nothing(), config, ("row",), warnings)
        if isinstance(taken, Path):
            config = config.model_copy(update={"archive": (str(taken),)})
            rows = _without_names(score_archive(config, taken))
            return _framed(rows, config, ("row",), warnings)
        config = config.model_copy(update={"archive": taken})
        return _framed(score_archive(config), config, ("source_file", "row"), warnings)


def _check_given(settings: Mapping[str, object]) -> None:
    """Refuse None for settings in which it has no meaning.

    Raises:
        SettingError: a setting is None.
    """
    for name in ("embedder", "precision", "cache_size", "threshold"):
        if settings[name] is None:
            none = "; for no embedder it is 'none'" if name == "embedder" else "; leave it out"
            raise SettingError(f"{name} is None{none}")


def _nothing() -> ScoredRows:
    """Return the scores of no rows."""
    scores = pl.DataFrame(schema={**SCORES, "row": pl.Int64})
    return ScoredRows(scores, REJECTS.to_frame(), dict.fromkeys(_COUNTED, 0))


def _without_names(rows: ScoredRows) -> ScoredRows:
    """Take the temporary file's name and lines out of messages."""
    last = rows.scores.select("trace_id", last="row")
    rejects = rows.rejects.join(last, on="trace_id", how="left", maintain_order="left")
    messages = map(_message, rejects.select("reasons", "message", "row", "last").iter_rows())
    named = pl.Series("message", [*messages], pl.String)
    return replace(rows, rejects=rejects.with_columns(named))


def _message(reject: tuple[list[str], str, int, int]) -> str:
    codes, message, row, last = reject
    if codes == [SUPERSEDED]:
        return f"the same id has other content in row {last}, which is later"
    if codes == [MALFORMED_JSON]:
        return f"the row{message.removeprefix(f'line {row + 1}')}"
    return message


def _framed(
    rows: ScoredRows, config: RescoreConfig, place: Sequence[str], warnings: Iterable[str]
) -> ScoredFrame:
    scores = rows.scores.with_columns(
        meets_threshold=pl.col("score") >= config.threshold,
        cache_warming_up=warming_up(config.settings),
    )
    return ScoredFrame.of(
        scores.select(*place, *COLUMNS),
        rows.rejects.select(*place, *_REJECTED),
        {name: rows.counts[name] for name in _COUNTED},
        warnings,
    )


def _by_code(rejects: pl.DataFrame) -> str:
    """The codes of some rejects with their numbers, the most frequent first."""
    codes = rejects.lazy().select(code=pl.col("reasons").list.explode()).drop_nulls()
    counts = codes.group_by("code").len().sort("len", "code", descending=[True, False]).collect()
    return ", ".join(f"{code} {rows:,}" for code, rows in counts.iter_rows())
