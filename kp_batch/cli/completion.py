"""What a shell completes besides options: runs, domains, questions and formats.

A shell waits, and shows whatever is written: the kp.duckdb of a warehouse is read as it stands,
and nothing is told of one that cannot be read.
"""

from collections.abc import Iterable
from tempfile import TemporaryDirectory

import click

from kp_batch.text import printable

_FORMATS = (  # of `importers.catalogue.FORMATS`, which take long to import
    *("atif", "auto", "inspect", "knowledgepulse"),
    *("langfuse", "langsmith", "otlp", "phoenix"),
)
_RUNS = """
    SELECT run_id FROM runs WHERE starts_with(run_id, $beginning)
    ORDER BY number DESC LIMIT 100
"""
_DOMAINS = """
    SELECT task_domain FROM distributions
    WHERE run_id = latest() AND starts_with(task_domain, $beginning)
    ORDER BY task_domain LIMIT 100
"""


def runs(context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """Names of runs, the last one first."""
    return [*_beginning(("latest", "previous"), beginning), *_told(context, _RUNS, beginning)]


def domains(context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """The domains of the current scores."""
    return _told(context, _DOMAINS, beginning)


def questions(_context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """Names of questions."""
    from kp_batch.warehouse.questions import questions as all_questions

    return _beginning((each.name for each in all_questions()), beginning)


def formats(_context: click.Context, _: click.Parameter, beginning: str) -> list[str]:
    """Formats of imports."""
    return _beginning(_FORMATS, beginning)


def _beginning(names: Iterable[str], beginning: str) -> list[str]:
    return [name for name in names if name.startswith(beginning)]


def _told(context: click.Context, query: str, beginning: str) -> list[str]:
    """Ask the warehouse that the command line names so far."""
    import duckdb

    from kp_batch.warehouse.manifest import copy_catalog

    try:
        with (
            TemporaryDirectory() as folder,
            duckdb.connect(
                str(copy_catalog(context.params["warehouse"], folder)), read_only=True
            ) as catalog,
        ):
            rows = catalog.execute(query, {"beginning": beginning}).fetchall()
    except Exception:  # noqa: BLE001 (whatever it is, the command itself tells it)
        return []
    return [name for (name,) in rows if name == printable(name)]
