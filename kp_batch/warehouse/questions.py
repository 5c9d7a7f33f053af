"""The SQL of a catalog: a file for each view, macro and question."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from operator import attrgetter
from typing import TYPE_CHECKING

from kp_batch.errors import KpBatchError
from kp_batch.faults import most_similar

if TYPE_CHECKING:
    import duckdb

_SQL = files("kp_batch.warehouse").joinpath("sql")
_GROUPS = (
    "means",
    "distribution",
    "dimensions",
    "what if",
    "novelty",
    "live engines",
    "between runs",
    "data quality",
)
_QUESTION = re.compile(
    r"-- Group: (?P<group>.+)\n"
    r"-- Example: (?P<example>.+);\n"
    r"(?:.*\n)*?"  # comments
    r"CREATE (?:VIEW|MACRO) (?P<call>(?P<name>\w+)(?:\([^()]*\))?) AS(?:.*\n)+"
    r"COMMENT ON .+ IS '(?P<comment>.+)';\n"
)


@dataclass(frozen=True)
class Question:
    """A view or a macro of the catalog that answers a question."""

    group: str
    name: str
    call: str  # the name, with a macro's parameters: score_histogram(bins)
    comment: str  # the question, and notes on its answer
    example: str  # a query


def statements(folder: str, *names: str) -> Iterator[str]:
    """Return the statements of a folder, `macros` or `questions`, sorted by name.

    If names are given, only those of these files.
    """
    if not names:
        return _texts(_SQL.joinpath(folder))
    return (_SQL.joinpath(folder, f"{name}.sql").read_text("utf-8") for name in names)


def question_statements() -> Iterator[str]:
    """Return the statements of all questions, each after those that it uses.

    Questions about means build on sums, in the folder `means`, and these on one view.
    """
    first = "trace_measures"
    yield from statements("questions", first)
    yield from statements("means")
    others = (text for text in statements("questions") if f"VIEW {first} " not in text)
    yield from sorted(others, key=lambda text: "CREATE VIEW" in text)


@cache
def catalog_id() -> str:
    """Return a digest of the SQL, which differs in the catalog of another kp_batch."""
    texts = sorted(_texts(_SQL))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _texts(folder: Traversable) -> Iterator[str]:
    for entry in sorted(folder.iterdir(), key=attrgetter("name")):
        if entry.is_dir():
            yield from _texts(entry)
        elif entry.name.endswith(".sql"):
            yield entry.read_text("utf-8")


def questions() -> list[Question]:
    """Return all questions, by group and name.

    Raises:
        ValueError: a file of SQL lacks a comment, or does not begin with its group and an example.
    """
    unsorted = map(_question, statements("questions"))
    return sorted(unsorted, key=lambda question: (_GROUPS.index(question.group), question.name))


def unknown_question(name: str) -> KpBatchError:
    """Say that there is no question of this name, and which one was probably meant."""
    names = [question.name for question in questions()]
    similar = most_similar(name, names)
    meant = f", did you mean {similar!r}?" if similar else ";"
    return KpBatchError(f"there is no question {name!r}{meant} ask one of {', '.join(names)}")


def columns(question: Question, connection: "duckdb.DuckDBPyConnection") -> dict[str, str]:
    """Return the columns of a question's answer, with their types in DuckDB, from any catalog."""
    answer = connection.sql(question.example)
    return dict(zip(answer.columns, map(str, answer.types), strict=True))


def _question(statement: str) -> Question:
    match = _QUESTION.fullmatch(statement)
    if match is None:
        raise ValueError(f"group, example, view or macro, and comment, got {statement!r}")
    if (group := match["group"]) not in _GROUPS:
        raise ValueError(f"{match['name']}: no such group: {group}; add it to _GROUPS")
    call = " ".join(match["call"].split()).replace("( ", "(").replace(" )", ")")
    comment = match["comment"].replace("''", "'")
    return Question(**{**match.groupdict(), "call": call, "comment": comment})
