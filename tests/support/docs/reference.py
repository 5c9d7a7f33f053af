"""Writes the parts of docs/reference/ that are generated from the code, and llms.txt.

`python -m tests.support.docs.reference` writes all; such a part is in its page between
`<!-- NAME: ... -->` and `<!-- end -->`.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

import click
import duckdb

from kp_batch import bounds
from kp_batch.cli import _MODULES, kp_batch
from kp_batch.cli.options import GROUPS, group_of
from kp_batch.columns import COLUMNS
from kp_batch.config import RescoreConfig
from kp_batch.schemas import TABLES
from kp_batch.warehouse.questions import Question, columns, statements
from kp_batch.warehouse.questions import questions as all_questions
from kp_batch.warehouse.reader import connect
from tests.support.docs.llms import LLMS, llms_txt
from tests.support.docs.pages import DOCS, anchor
from tests.support.docs.python_reference import python
from tests.support.make.publications import publish_nothing
from tests.support.read.schemas import SCHEMAS, schema_files

REFERENCE = DOCS / "reference"
for _name in _MODULES:  # they add their commands to the group, which two pages need
    import_module(f"kp_batch.cli.{_name}")


def commands() -> Iterator[str]:
    """Every command with its options; those of several commands once, and settings by name."""
    of_run = _rows("run")
    shared = {name: of_run[name] for name in _SHARED}
    yield from ("## Shared options\n", *shared.values(), "")
    for name, command in sorted(kp_batch.commands.items()):
        with click.Context(command, info_name=f"kp-batch {name}") as context:
            usage = " ".join(command.collect_usage_pieces(context))
        yield f"## kp-batch {name}\n\n`kp-batch {name} {usage}`\n"
        yield f"{_paragraphs(command.help or '')}\n"
        yield from _options(_rows(name), shared, of_run)


_SHARED = ("--project", "--warehouse", "--json")


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _rows(command: str) -> dict[str, str]:
    """What each option of a command is, by its last name."""
    found: dict[str, str] = {}
    with click.Context(kp_batch.commands[command]) as context:
        for param in context.command.get_params(context):
            record = param.get_help_record(context)
            if isinstance(param, click.Option) and record and "--help" not in param.opts:
                found[param.opts[-1]] = f"- `{_spaced(record[0])}`: {_spaced(record[1])}"
    return found


def _options(
    rows: Mapping[str, str], shared: Mapping[str, str], of_run: Mapping[str, str]
) -> Iterator[str]:
    """The options of a command; those that another place explains are only named."""
    fields = {f"--{name.replace('_', '-')}" for name in RescoreConfig.model_fields} - {*shared}
    every = [name for name in of_run if name in fields]
    settings = [name for name in every if rows.get(name) == of_run[name]]
    own = [row for name, row in rows.items() if name not in settings and row != shared.get(name)]
    yield from (*own, "") if own else ()
    if len(settings) > 1:
        others = [name for name in every if name not in settings]
        yield f"All [settings](settings.md){f' except {_names(others)}' if others else ''}.\n"
    elif settings:
        yield f"[Setting](settings.md): {_names(settings)}.\n"
    named = [name for name, row in rows.items() if row == shared.get(name)]
    if len(named) == len(shared):
        yield "All [shared options](#shared-options).\n"
    elif named:
        yield f"[Shared options](#shared-options): {_names(named)}.\n"


def _names(options: Iterable[str]) -> str:
    return ", ".join(f"`{option}`" for option in options)


def _spaced(text: str) -> str:
    return " ".join(text.replace(" RANGE", "").split())


def settings() -> Iterator[str]:
    """Every setting of a run with its default, in the groups that help has."""
    for title in GROUPS:
        yield f"{title[0].upper()}{title[1:]}:\n"
        yield from (row for name, row in _settings() if group_of(name) == title)
        yield ""


def _settings() -> Iterator[tuple[str, str]]:
    """What each setting is, with its name."""
    least = RescoreConfig.model_validate({"archive": [""], "warehouse": ""}).model_dump(mode="json")
    for name, field in RescoreConfig.model_fields.items():
        shown = {"profiles": "the built-in ones", "audits": "none"}.get(name, least[name])
        has_default = not field.is_required() and shown not in (None, False, [], [""])
        default = f" ({f'{shown}'.lower()})" if has_default else ""
        yield name, f"- `{name}`{default}: {field.description}"


def limits() -> Iterator[str]:
    """Every limit on what is read, with what its comment says."""
    source = Path(bounds.__file__).read_text("utf-8")
    for name, of_what in re.findall(r"^([A-Z]\w+) = .*?  # (.+)$", source, re.MULTILINE):
        value = getattr(bounds, name)
        yield f"- {_size(value) if name.endswith('_BYTES') else f'{value:,}'}: {of_what}"


def _size(value: int) -> str:
    return f"{value >> 30} GiB" if value >= 1 << 30 else f"{value >> 20} MiB"


def questions() -> Iterator[str]:
    """Every question: what it answers, how it is asked, its columns."""
    groups = [(group, [*members]) for group, members in groupby(all_questions(), lambda e: e.group)]
    for group, members in groups:
        links = (f"[`{each.name}`](#{anchor(each.call)})" for each in members)
        yield f"- {group}: {', '.join(links)}"
    with _empty() as connection:
        types = {each.name: _types(each, connection) for each in all_questions()}
    common = _common([*types.values()])
    yield from ("\nThe types of columns, unless the column names its own:\n", *_by_type(common))
    for group, members in groups:
        yield f"\n## {group[0].upper()}{group[1:]}\n"
        for each in members:
            yield from _question(each, types[each.name], common)


def _types(question: Question, connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The types of the columns of a table; empty for a value."""
    if question.example.startswith("SELECT"):
        return {}
    return {name: _type(kind) for name, kind in columns(question, connection).items()}


def _common(tables: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The types that several tables' columns of one name have in common."""
    pairs = Counter(pair for table in tables for pair in table.items())
    most = {name: kind for (name, kind), _ in reversed(pairs.most_common())}
    return {name: kind for name, kind in most.items() if pairs[name, kind] > 1}


def _by_type(common: Mapping[str, str]) -> Iterator[str]:
    for kind in sorted({*common.values()} - {"double"}):
        yield f"- {kind}: {_names(sorted(name for name in common if common[name] == kind))}"
    yield "- double: all others"


def _question(
    question: Question, types: Mapping[str, str], common: Mapping[str, str]
) -> Iterator[str]:
    yield f"### {question.call}\n\n{question.comment}\n\n```sql\n{question.example};\n```\n"
    if types:
        listed = (
            f"`{name}`" if kind == common.get(name, "double") else f"`{name}` {kind}"
            for name, kind in types.items()
        )
        yield f"Columns: {', '.join(listed)}.\n"


def _type(kind: str) -> str:
    """A type in short; the page has the fields of a struct once."""
    return re.sub(r"\(.*", "", kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")).lower()


def macros() -> Iterator[str]:
    """The formulas that are not only steps of questions: their parameters and what they are."""
    steps = "".join((*statements("means"), *statements("macros", *_STEPS)))
    names = {*re.findall(r"CREATE MACRO (\w+)", steps), *(each.name for each in all_questions())}
    with _empty() as connection:
        signatures = connection.execute(
            "SELECT function_name, parameters, comment FROM duckdb_functions() "
            "WHERE NOT internal AND schema_name = 'main' AND NOT contains(function_name, ' of ') "
            "ORDER BY ALL"
        ).fetchall()
    for name, parameters, comment in signatures:
        if name not in names:
            yield f"- `{name}({', '.join(parameters)})`: {comment}"


_STEPS = (
    "measures",
    "names",
    "parts",
    "share_of_cache",
    "shows_novelty",
    "uncertainty",
)  # files of such macros


def columns_of_results() -> Iterator[str]:
    """Every column of the tables of results, except those that are in views as well."""
    in_views = {name for view in ("scores", "distributions", "runs") for name in TABLES[view]}
    in_views -= {"single_thought"}  # which says in results in which run, instead of whether
    others = (item for item in COLUMNS.items() if item[0] not in in_views)
    for meaning, items in groupby(others, lambda item: item[1].meaning):
        yield f"- {_names(name for name, _ in items)}: {meaning}"


@contextmanager
def _empty() -> Generator[duckdb.DuckDBPyConnection]:
    """A catalog without a run."""
    with tempfile.TemporaryDirectory() as folder:
        publish_nothing(Path(folder))
        with connect(Path(folder)) as connection:
            yield connection


PARTS: Mapping[str, Mapping[str, Callable[[], Iterator[str]]]] = MappingProxyType(
    {
        "commands.md": {"commands": commands},
        "settings.md": {"settings": settings, "limits": limits},
        "questions.md": {"questions": questions, "macros": macros},
        "python.md": {"python": python, "columns": columns_of_results},
    }
)


def written(page: str) -> str:
    """A page with its generated parts as the code has them now."""
    text = (REFERENCE / page).read_text("utf-8")
    for name, part in PARTS[page].items():
        content = "\n".join(part()).strip()
        head = f"<!-- {name}: written by python -m tests.support.docs.reference -->"
        section = re.compile(rf"{re.escape(head)}\n.*?<!-- end -->", re.DOTALL)
        assert len(section.findall(text)) == 1, f"{page} has no place for its {name}"
        text = section.sub(lambda _, new=f"{head}\n\n{content}\n\n<!-- end -->": new, text)
    return text


if __name__ == "__main__":
    for page in PARTS:
        (REFERENCE / page).write_text(written(page), "utf-8")
    for file, text in schema_files().items():
        (SCHEMAS / file).write_text(text, "utf-8")
    LLMS.write_text(llms_txt(), "utf-8")
