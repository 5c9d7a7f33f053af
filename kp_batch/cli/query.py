"""Questions to a warehouse: sql, runs, settings, audit, compare, verify, report."""

import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.export import ending_of, output_file
from kp_batch.cli.options import (
    NamedFile,
    Parsed,
    WarehouseFolder,
    complete_questions,
    complete_runs,
    count_option,
    expected_warehouse_id,
    format_option,
    json_line,
    json_option,
    option_of_format,
    rows_as_json_option,
    settings_from_elsewhere,
    the_project,
    warehouse_of_project,
    warehouse_option,
    warehouse_option_of,
)
from kp_batch.duck import set_variables
from kp_batch.errors import KpBatchError
from kp_batch.files import decoded
from kp_batch.log import echo, echo_line, user_out, writing_to
from kp_batch.text import parse_duration, printable
from kp_batch.warehouse.questions import Question, unknown_question
from kp_batch.warehouse.questions import questions as all_questions

if TYPE_CHECKING:
    import polars as pl

_ANY_WIDTH = 10**6  # characters, where the terminal's width is unknown
_RUN = "an id or its beginning, latest, previous, a time, or candidate"


class QuestionsHelp(click.Command):
    """A command whose help names the questions."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Command`."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Questions, which kp-batch sql explains"):
            formatter.write_dl(
                [
                    (group, ", ".join(question.call for question in questions))
                    for group, questions in groupby(all_questions(), attrgetter("group"))
                ]
            )


def _warehouse_of_query(
    context: click.Context, parameter: click.Parameter, value: Path | None
) -> Path | None:
    """The warehouse of a query; a question's page needs none."""
    if _is_query(context.params["query"], context.params["file"]):
        return warehouse_of_project(context, parameter, value)
    return value


@kp_batch.command(cls=QuestionsHelp)
@click.argument("query", required=False, is_eager=True, shell_complete=complete_questions)
@click.option(
    "-f", "--file", type=NamedFile("rb"), is_eager=True, help="Read QUERY from a file; - is stdin."
)
@warehouse_option_of(callback=_warehouse_of_query)
@format_option
@click.option(
    "--as-of",
    metavar="RUN",
    shell_complete=complete_runs,
    help=f"Query the tables as RUN left them: {_RUN}.",
)
@click.option("--fail-if-rows", is_flag=True, help="Exit with 1 if the answer has rows.")
@rows_as_json_option
def sql(  # noqa: PLR0913 (each is an option)
    query: str | None,
    file: IO[bytes] | None,
    warehouse: Path,
    output_format: str,
    as_of: str | None,
    *,
    fail_if_rows: bool,
    as_json: bool,
) -> None:
    """Query the tables with SQL.

    The views are scores, rejects, profiles, runs, files and distributions. Several statements print
    several answers; csv and --json take only one. Without QUERY, list the questions. If QUERY is
    the name of a question, explain it.
    """
    if not _is_query(query, file):
        if as_of or fail_if_rows:
            raise click.UsageError("--as-of and --fail-if-rows need a query, such as 'FROM scores'")
        _print_questions(query, as_json=as_json)
        return
    output_format = "json" if as_json else output_format
    if ask(warehouse, _query(query, file), output_format, as_of) and fail_if_rows:
        raise KpBatchError("the query of --fail-if-rows returned rows; see its output")


def _is_query(query: str | None, file: IO[bytes] | None) -> bool:
    """Whether there is a query; the name of a question alone is none."""
    names = {question.name for question in all_questions()}
    return file is not None or not (query is None or query in names)


def _print_questions(name: str | None, *, as_json: bool) -> None:
    """List the questions, or the one of this name."""
    chosen = [question for question in all_questions() if name in {None, question.name}]
    echo(json_line(chosen) if as_json else _questions_text(chosen))


def _questions_text(questions: list[Question]) -> str:
    return "\n".join(
        f"{group}\n"
        + "".join(f"  {one.call}\n    {one.comment}\n    {one.example}\n" for one in members)
        for group, members in groupby(questions, attrgetter("group"))
    ).rstrip("\n")


@kp_batch.command()
@warehouse_option
@format_option
@rows_as_json_option
def runs(warehouse: Path, output_format: str, *, as_json: bool) -> None:
    """List the runs, the newest first, and the candidate.

    Shows what each run changed, or why it failed. In the column kept, as-of means that --as-of can
    read the run's tables, and rollback that a rollback can also publish them again.
    """
    from kp_batch.operations.kept_runs import RUNS, available_runs

    available = available_runs(warehouse)
    if output_format == "table" and not shutil.get_terminal_size((0, 0)).columns:
        output_format = "line"  # a mail or a log is no wider than a terminal
    form = "json" if as_json else output_format
    ask(warehouse, RUNS, form, variables=available.variables)
    if available.candidate:
        echo_line(
            f"run {available.candidate} left a candidate; to look at it: "
            "kp-batch sql --as-of candidate, kp-batch compare latest candidate"
        )


@kp_batch.command()
@warehouse_option_of(type=WarehouseFolder(path_type=Path, readable=False), metavar="DIRECTORY")
@click.option(
    "--max-age",
    type=Parsed(parse_duration),
    metavar="TIME",
    help="Exit with 1 if the last success is missing or older than this, such as 26h.",
)
@click.option(
    "--max-trace-age",
    type=Parsed(parse_duration),
    metavar="TIME",
    help="Exit with 1 if the newest trace is missing or older than this, such as 3d. Traces dated "
    "in the future do not count.",
)
@click.option(
    "--fail-if-failed",
    is_flag=True,
    help="Exit with 1 if the last run did not succeed.",
)
@click.option(
    "--prometheus", is_flag=True, help="Print metrics for the textfile collector of Prometheus."
)
@json_option
def status(  # noqa: PLR0913 (each is an option)
    warehouse: Path,
    max_age: timedelta | None,
    max_trace_age: timedelta | None,
    *,
    fail_if_failed: bool,
    prometheus: bool,
    as_json: bool,
) -> None:
    """Show the last run, the last success and open warnings.

    Exits with 1 if the warehouse or one of its tables is missing, or if it cannot be reached within
    30 s. Writes nothing.
    """
    if prometheus and as_json:
        raise click.UsageError("give one of --prometheus and --json")
    from kp_batch.operations.prometheus import metrics_text
    from kp_batch.operations.status import (
        check_age,
        check_last_run,
        check_trace_age,
        status_of,
        status_text,
    )

    now = datetime.now(UTC)
    found = status_of(warehouse, now, expected_warehouse_id(), the_project())
    if prometheus:
        echo(metrics_text(found, now), nl=False)
    else:
        echo(json_line(found) if as_json else status_text(found, now))
    if fail_if_failed:
        check_last_run(found)
    check_age(found, max_age)
    check_trace_age(found, max_trace_age)


@kp_batch.command()
@warehouse_option
@json_option
def settings(warehouse: Path, *, as_json: bool) -> None:
    """Show the settings of the next run.

    Shows where each comes from, and which run set it.
    """
    from kp_batch.operations.current_settings import settings as settings_of
    from kp_batch.operations.current_settings import settings_text

    current = settings_of(warehouse, the_project())
    if text := settings_from_elsewhere(warehouse):
        echo_line(text)
    echo(json_line(current) if as_json else settings_text(current))


@kp_batch.command()
@click.argument("run", required=False, shell_complete=complete_runs)
@warehouse_option
@json_option
def audit(run: str | None, warehouse: Path, *, as_json: bool) -> None:
    """Run the audits of the warehouse.

    They read the tables that RUN left, by default those of the last run. RUN may be candidate. In
    an audit, published.TABLE is the table before RUN. Exits with 1 if an audit fails.
    """
    from kp_batch.pipeline.audit import audit as audit_warehouse
    from kp_batch.warehouse.audits import refuse_failed

    results = audit_warehouse(warehouse, run)
    echo(json_line(results) if as_json else str(results))
    refuse_failed(results, "what is published stays")


@kp_batch.command()
@click.argument("before", metavar="RUN", shell_complete=complete_runs)
@click.argument("after", metavar="RUN", shell_complete=complete_runs)
@warehouse_option
@click.option("--force", is_flag=True, help="Compare even if encoders or formulas differ.")
@click.option("--crossed", is_flag=True, help="Write the traces that crossed the threshold to -o.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="For --crossed: FILE.jsonl, FILE.parquet, FILE.csv, or - for JSONL on stdout.",
)
@json_option
def compare(  # noqa: PLR0913 (each is an option)
    before: str,
    after: str,
    warehouse: Path,
    *,
    force: bool,
    crossed: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Compare the scores of two runs.

    Shows how they changed from the first RUN to the second, and why. A RUN is an id or its
    beginning, latest, previous, candidate, or a time such as 2026-03-01T02:00 (in UTC unless a zone
    follows): the last run that had succeeded by then.
    """
    from kp_batch.operations.compare import compare as compare_runs

    if crossed != bool(output):
        raise click.UsageError("--crossed and -o FILE go together: the traces, and where they go")
    if as_json and output == "-":
        raise click.UsageError("--json and -o - both write to stdout; name a file with -o")
    with _frame_file(warehouse, output) if output else nullcontext() as take:
        comparison = compare_runs(warehouse, before, after, force=force, take_crossed=take)
        text = json_line(comparison) if as_json else str(comparison)
        # stdout may be the traces themselves.
        echo(text, err=output == "-")


@contextmanager
def _frame_file(warehouse: Path, output: str) -> Generator["Callable[[pl.DataFrame], None]"]:
    """Yield a function that writes a frame into a file, which appears once the context ends."""
    from kp_batch.exports.output import check_output

    ending = ending_of(output, (".jsonl", ".parquet", ".csv"))
    if output != "-":
        check_output(warehouse, Path(output).absolute())
    with output_file(output) as file:

        def write(frame: "pl.DataFrame") -> None:
            writers = {".jsonl": frame.write_ndjson, ".parquet": frame.write_parquet}
            writers.get(ending, frame.write_csv)(file)

        yield write


@kp_batch.command()
@warehouse_option
@count_option("--sample", "traces", default=100, help="How many traces to draw at random.")
@click.option("--no-embed", is_flag=True, help="Trust the stored vectors.")
@click.option("--seed", type=int, help="The same seed draws the same traces.  [default: a new one]")
@json_option
def verify(
    warehouse: Path, traces: int, seed: int | None, *, no_embed: bool, as_json: bool
) -> None:
    """Score some traces again, and compare.

    Scores them from their files. Exits with 1 if a score differs from the published one, or if
    there is no unchanged file.
    """
    from kp_batch.operations.verify import refuse_wrong
    from kp_batch.operations.verify import verify as verify_traces

    verification = verify_traces(warehouse, traces=traces, seed=seed, embed=not no_embed)
    echo(json_line(verification) if as_json else str(verification))
    refuse_wrong(verification)


@kp_batch.command()
@warehouse_option
@option_of_format(type=click.Choice(["html", "markdown"]), default="html")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="- is stdout.  [default: report.html; for markdown, stdout]",
)
def report(warehouse: Path, output_format: str, output: str | None) -> None:
    """Write a report on the scores.

    The report is an HTML page, or markdown with its text and numbers.
    """
    from kp_batch.report.build import report as report_of

    text = report_of(warehouse, output_format)
    if output is None:
        output = "report.html" if output_format == "html" else "-"
    if output == "-":
        echo(text, nl=False)
    else:
        with output_file(output) as page:
            page.write_text(text, "utf-8")
        echo_line(f"the report is in {printable(output)}")


def _query(query: str | None, file: IO[bytes] | None) -> str:
    if file is None:
        if query and query.isidentifier():  # no SQL either
            raise unknown_question(query)
        return query or ""
    if query is not None:
        raise click.UsageError("give one of QUERY and -f FILE")
    try:
        return decoded(file.read())
    except ValueError as error:
        raise click.UsageError(f"{file.name} cannot be read: {error}") from error


def ask(
    warehouse: Path,
    query: str,
    output_format: str,
    as_of: str | None = None,
    variables: Mapping[str, object] | None = None,
) -> bool:
    """Print the answer to a query, and return whether it has rows."""
    from kp_batch.warehouse.answer_formats import write_answer
    from kp_batch.warehouse.reader import connect

    out = user_out() or StringIO()  # where stdout is closed
    width = shutil.get_terminal_size((_ANY_WIDTH, 0)).columns
    with connect(warehouse, as_of) as connection, writing_to("stdout"):
        set_variables(connection, **(variables or {}))
        return write_answer(connection, query, output_format, out, width)
