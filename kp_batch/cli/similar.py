"""`similar` and `redundancy`: what resembles what in the whole archive."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.explain import line_head, moment_text, print_lines
from kp_batch.cli.options import (
    NamedFile,
    Parsed,
    json_line,
    json_option,
    number_option,
    warehouse_option,
)
from kp_batch.log import echo
from kp_batch.text import age, aligned, count_of, printable, shortened

if TYPE_CHECKING:
    from kp_batch.operations.similar import SimilarLine, SimilarTrace, SimilarTraces
    from kp_batch.warehouse.redundancy import Redundancy

_NAME, _ID = 30, 60  # characters


class _TraceOrFile(NamedFile):
    """A file that is there, or - for stdin, opened; everything else is a trace's name, a text."""

    def convert(
        self,
        value: str | os.PathLike[str] | IO[Any],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """See `click.ParamType`."""
        if isinstance(value, str) and value != "-" and not _is_file(value):
            return value
        return super().convert(value, param, ctx)


def _is_file(name: str) -> bool:
    with suppress(OSError):  # an id may be too long for a file's name
        return Path(name).exists() and not Path(name).is_dir()
    return False


@kp_batch.command()
@click.argument("trace", metavar="TRACE|FILE", type=_TraceOrFile("rb"))
@warehouse_option
@number_option("-n", "most", default=10, help="How many are listed at the most.")
@json_option
def similar(trace: str | IO[bytes], warehouse: Path, most: int, *, as_json: bool) -> None:
    """Find the traces of the whole archive, earlier and later, that one resembles most.

    TRACE is its id or the beginning of one. FILE, or - for stdin, has new traces, as score takes
    them; --json then prints a line for each.
    """
    from kp_batch.operations.similar import similar_to_lines, similar_to_trace

    to_text = json_line if as_json else similar_text
    if isinstance(trace, str):
        echo(to_text(similar_to_trace(warehouse, trace, most)))
    else:
        answers = similar_to_lines(warehouse, trace, datetime.now(UTC), most)
        print_lines(trace, answers, to_text, "cannot be compared")


def _cosine(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or not 0 < float(text) <= 1:
        raise ValueError(f"a similarity is a number above 0, up to 1, got {text!r}")
    return float(text)


@kp_batch.command()
@warehouse_option
@click.option(
    "--similarity",
    type=Parsed(_cosine),
    metavar="COSINE",
    default="0.95",
    show_default=True,
    help="From which on a trace nearly repeats an earlier one.",
)
@json_option
def redundancy(warehouse: Path, similarity: float, *, as_json: bool) -> None:
    """Find the share of the traces that nearly repeat any earlier one of the archive.

    It is exact up to 50,000 different texts, and of more an estimate with its interval. The
    question redundancy of sql shows it until anything else is published.
    """
    from kp_batch.operations.redundancy import redundancy as redundancy_of

    result = redundancy_of(warehouse, similarity)
    echo(json_line(result) if as_json else redundancy_text(result))


def redundancy_text(result: "Redundancy") -> str:
    """Format the redundancy of an archive for a terminal."""
    near = f"a text or vector like an earlier one ({result.similarity:g})"
    counts = {
        "the text of an earlier one": result.same_text,
        "the objective of an earlier one": result.same_objective,
        near: round(result.share * result.traces),
    }
    about = "" if result.is_exact else "about "
    rows = [
        {
            "with": name,
            "traces": f"{about * (name == near)}{count:,}",
            "share": f"{count / result.traces:.2%}",
        }
        for name, count in counts.items()
    ]
    lines = [f"{count_of(result.traces, 'trace')}, by {result.encoder_id}", *aligned(rows)]
    if not result.is_exact:
        others = result.traces - result.same_text
        lines.append(
            f"  estimated, with a 95% interval from {result.low:.2%} to {result.high:.2%}: of the "
            f"{others:,} texts {result.compared:,} were compared with all earlier ones"
        )
    if result.other_encoders:
        lines.append(f"  not counted: {result.other_encoders:,} with vectors of another encoder")
    return "\n".join(lines)


def similar_text(result: "SimilarLine") -> str:
    """Format the nearest traces of one for a terminal."""
    from kp_batch.operations.score import Unscored

    if isinstance(result, Unscored):
        head = line_head(result.line, result.trace_id)
        return f"{head} cannot be compared: {printable(result.message)}\n"
    return "\n".join([*_head(result), *aligned([_cells(each) for each in result.nearest]), ""])


def _head(result: "SimilarTraces") -> Iterator[str]:
    if result.line is None:
        yield f"trace {shortened(result.trace_id or '', _ID)}"
        domain = shortened(result.task_domain, _NAME)
        yield f"  made {moment_text(result.created_at)}, {domain}"
    else:
        yield f"{line_head(result.line, result.trace_id)}, {shortened(result.task_domain, _NAME)}"
    yield f"the nearest of {count_of(result.compared, 'trace')}, by {result.encoder_id}"
    if result.other_encoders:
        yield f"  not compared: {result.other_encoders:,} that have vectors of another encoder"
    if result.missing:
        yield (
            f"  not compared: {result.missing:,} whose vectors are missing; kp-batch run with "
            "--restore-vectors makes them again"
        )
    if result.is_zero:
        yield "  its text has nothing to compare: its vector is zero, and similar to none"


def _cells(trace: "SimilarTrace") -> dict[str, str]:
    when = age(abs(trace.age_s)) + (" later" if trace.age_s < 0 else " earlier")
    return {
        "similarity": f"{trace.similarity:.4f}",
        "trace": shortened(trace.trace_id, _ID),
        "domain": shortened(trace.task_domain, _NAME),
        "score": f"{trace.score:.4f}",
        "made": when,
        "": "the same text" if trace.is_same_text else "",
    }
