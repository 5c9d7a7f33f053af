"""The options of `export`: which traces it chooses, and how it writes them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from kp_batch.duck import literal, statement
from kp_batch.errors import KpBatchError
from kp_batch.settings import ONE_OR_MORE, Metavar, SettingsModel
from kp_batch.text import count_of, one_line


def _parse_day(day: Any) -> str | None:
    try:
        return None if day is None else str(date.fromisoformat(str(day)))
    except ValueError as error:
        raise ValueError(
            f"it must be a day, such as 2026-01-31, got {str(day)!r}; for a time, use "
            "where=\"created_at <= '2026-01-31T12:00Z'\""
        ) from error


_PER = re.compile(r"([a-z_]+)=([1-9]\d{0,8})")
PER_COLUMNS = (
    *("task_domain", "objective", "agent_id", "framework", "source_skill", "profile"),
    *("cache_group", "source_file"),
)


def _parse_per(value: Any) -> Any:
    """Return texts such as task_domain=125, given a mapping, one text or several."""
    if isinstance(value, Mapping):
        value = [f"{column}={most}" for column, most in value.items()]
    is_one = isinstance(value, str) or not isinstance(value, Iterable)
    texts: tuple[Any, ...] = (value,) if is_one else (*value,)
    for text in texts:
        found = _PER.fullmatch(str(text))
        if not (found and found[1] in PER_COLUMNS):
            raise ValueError(
                f"it must be a column and a number, such as task_domain=125, got {str(text)!r}; "
                f"the columns are {', '.join(PER_COLUMNS)}"
            )
    return texts


Day = Annotated[str | None, BeforeValidator(_parse_day), Metavar("DATE")]


def _read_ids(value: Any) -> Any:
    from kp_batch.exports.earlier import read_ids  # imports Polars, which takes long

    try:
        return None if value is None else read_ids(value)
    except KpBatchError as error:  # pydantic adds the option's name to a ValueError
        raise ValueError(str(error)) from error


class ExportOptions(SettingsModel):
    """Which traces are exported (those that meet all conditions), and in which form."""

    format: Literal[
        "traces",
        "messages",
        "registry",
        "langfuse",
        "langsmith",
        "phoenix",
        "inspect",
        "otel",
        "csv",
    ] = Field("traces", description="What to write for each trace.")
    ids: Annotated[tuple[str, ...] | None, BeforeValidator(_read_ids), Metavar("FILE")] = Field(
        None,
        description="Only the traces in this file: one id per line, or a table with a column "
        "trace_id or id, such as an earlier export.",
    )
    only_changed: Annotated[str | None, Metavar("RUN")] = Field(
        None,
        min_length=1,
        description="Only traces that are new since RUN, or whose score or scoring settings "
        "changed.",
    )
    min_score: Annotated[float | None, Metavar("SCORE")] = Field(
        None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="The lowest score. Default: the warehouse's threshold, or 0 for scores alone.",
    )
    domain: Annotated[tuple[str, ...], ONE_OR_MORE] = Field(
        (), description="Only this domain; may be repeated."
    )
    since: Day = Field(None, description="Only traces made on this day or later, in UTC.")
    until: Day = Field(None, description="Only traces made on this day or earlier, in UTC.")
    success: bool = Field(default=False, description="Only successful traces.")
    where: Annotated[str | None, Metavar("SQL")] = Field(
        None, description="A condition on the view scores."
    )
    distinct: Annotated[float | None, Metavar("COSINE")] = Field(
        None,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Leave out traces at least this similar to a better one: 0.95, or 1 for equal "
        "texts.",
    )
    per: Annotated[tuple[str, ...], BeforeValidator(_parse_per), Metavar("COLUMN=N")] = Field(
        (),
        description="Only the best N for each value of a column, best first: task_domain=125, or "
        "objective=1 for one attempt at each task; may be repeated.",
    )
    top: Annotated[int | None, Metavar("N")] = Field(
        None, ge=1, description="Only the best N, best first."
    )
    include_private: bool = Field(default=False, description="Also export private traces.")
    include_registry: bool = Field(
        default=False, description="With --format registry, also export traces from a registry."
    )
    no_thoughts: bool = Field(
        default=False, description="With --format messages, leave out the model's reasoning."
    )
    split: Annotated[float | None, Metavar("SHARE")] = Field(
        None,
        gt=0,
        lt=1,
        description="Write about this share of the traces to NAME.train, the others to NAME.test.",
    )
    split_by: Literal["objective", "time"] = Field(
        "objective",
        description="objective keeps each task in one file; time puts older traces in NAME.train.",
    )
    deleted: Annotated[Path | None, Metavar("FILE")] = Field(
        None,
        description="Also write the ids of scores to delete: those of traces in --only-changed or "
        "--ids that have no score now.",
    )
    compare_with: Annotated[Path | None, Metavar("FILE")] = Field(
        None, description="Report which traces entered and left since this export, and why."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since and self.until and self.since > self.until:
            raise ValueError(f"since {self.since} is after until {self.until}; change one")
        if self.deleted and not (self.only_changed or self.ids):
            raise ValueError("deleted needs earlier scores: give only_changed or ids")
        return self

    @model_validator(mode="after")
    def _has_thoughts(self) -> Self:
        if self.no_thoughts and self.format != "messages":
            raise ValueError("no_thoughts needs the format messages; choose this format")
        if self.include_registry and self.format != "registry":
            raise ValueError("include_registry needs the format registry; choose this format")
        if self.split_by != "objective" and self.split is None:
            raise ValueError("split_by needs split, the share for training; give it")
        return self

    @property
    def best_first(self) -> bool:
        """Whether the best traces come first, instead of the oldest."""
        return bool(self.per) or self.top is not None

    @property
    def most_per(self) -> Sequence[tuple[str, int]]:
        """Columns of the view scores, each with the most traces to export per value."""
        pairs = (text.partition("=") for text in self.per)
        names = {"objective": "objective_hash"}
        return [(names.get(column, column), int(most)) for column, _, most in pairs]

    def conditions(self, threshold: str | None) -> Iterator[tuple[str, str]]:
        """Yield each condition in SQL, and in words.

        The SQL reads the variable `domains` and the tables asked_ids and unchanged_ids.

        Args:
            threshold: the default of `min_score`; None: 0.
        """
        if self.ids is not None:
            yield "trace_id IN (FROM asked_ids)", f"one of {count_of(len(self.ids), 'id')}"
        if self.only_changed:
            unchanged = "trace_id NOT IN (FROM unchanged_ids)"
            yield unchanged, f"changed since run {self.only_changed}"
        if self.min_score is None and threshold is not None:
            yield "meets_threshold", f"score >= {threshold}, the threshold of the warehouse"
        elif self.min_score:
            least = statement("score >= $least::DOUBLE", least=self.min_score)
            yield least, f"score >= {self.min_score}"
        if self.domain:
            among = "list_contains(getvariable('domains'), task_domain)"
            yield among, f"domain {' or '.join(self.domain)}"
        if self.since:
            since = statement("day_of(created_at) >= $day::DATE", day=literal(self.since))
            yield since, f"since {self.since}"
        if self.until:
            until = statement("day_of(created_at) <= $day::DATE", day=literal(self.until))
            yield until, f"until {self.until}"
        if self.success:
            yield "success", "success"
        if self.where is not None:
            yield self.where, one_line(self.where)
