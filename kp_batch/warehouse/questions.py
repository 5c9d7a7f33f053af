"""The questions that a catalog answers by name, as the SQL of each tells it."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kp_batch.warehouse.catalog_sql import statements

if TYPE_CHECKING:
    import duckdb

_GROUPS = (
    "distribution",
    "dimensions",
    "what if",
    "novelty",
    "live engines",
    "between runs",
    "data quality",
)
_TOLD = re.compile(
    r"-- Group: (?P<group>.+)\n"
    r"-- Example: (?P<example>.+);\n"
    r"(?:.*\n)*?"  # why it is written as it is
    r"CREATE (?:VIEW|MACRO) (?P<call>(?P<name>\w+)(?:\(.*?\))?) AS(?:.*\n)+"
    r"COMMENT ON .+ IS '(?P<comment>.+)';\n"
)


@dataclass(frozen=True)
class Question:
    """A view or a macro of the catalog that answers a question."""

    group: str
    name: str
    call: str  # the name with the parameters of a macro: score_histogram(bins)
    comment: str  # the question, and what is to be known of its answer
    example: str  # a query


def questions() -> list[Question]:
    """All questions, by group and name.

    Raises:
        ValueError: a file of SQL does not begin with its group and an example, or has no comment.
    """
    found = [_question(statement) for statement in statements("questions")]
    return sorted(found, key=lambda each: (_GROUPS.index(each.group), each.name))


def columns(question: Question, connection: "duckdb.DuckDBPyConnection") -> dict[str, str]:
    """The columns of a question's answer, and their types in DuckDB.

    Args:
        question: the question.
        connection: any catalog.
    """
    answer = connection.sql(question.example)
    return dict(zip(answer.columns, map(str, answer.types), strict=True))


def _question(statement: str) -> Question:
    told = _TOLD.fullmatch(statement)
    if told is None:
        raise ValueError(f"group, example, view or macro, and comment, got {statement!r}")
    return Question(**{**told.groupdict(), "comment": told["comment"].replace("''", "'")})
