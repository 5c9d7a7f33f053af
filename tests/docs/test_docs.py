"""The documentation: every command and query in it is run, every reference page is complete."""

import ast
import errno
import json
import os
import re
from dataclasses import fields
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import duckdb
import polars as pl
import pytest

import kp_batch
from kp_batch import errors
from kp_batch.archive.columns import FIELDS, STEP_FIELDS
from kp_batch.archive.ledger import FileChanges
from kp_batch.archive.validation import CHECKS, REASONS, fault_sentence, reject_message
from kp_batch.conversion.formats import FORMATS
from kp_batch.schemas import EXPORTED, TABLES, TRACE, VIEWS
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import FORMAT_VERSION
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.run_record import RunCounts
from tests.docs.messages import LIST, all_messages, says_what_to_do, strings
from tests.support import GOLDEN
from tests.support.docs.commands import missing, outputs, shell
from tests.support.docs.pages import (
    CONTRIBUTING,
    DOCS,
    OF_TESTS,
    PAGES,
    README,
    ROOT,
    SECURITY,
    anchors,
    blocks,
    explained,
    links,
    loose_outputs,
    rows,
)
from tests.support.docs.reference import PARTS, REFERENCE, commands, written
from tests.support.make.publications import publish_nothing
from tests.support.make.rejected_rows import REFUSED, REFUSED_JSON

BEGINNING = "kp-batch run data/sample --embedder hashing"
TROUBLESHOOTING, WHAT_DUCKDB_SAYS = DOCS / "how-to" / "troubleshooting.md", "What DuckDB says"
TUTORIAL = DOCS / "tutorial.md"
RUN = [page for page in PAGES if page != README and any(block.is_run for block in blocks(page))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pages are run one after the other, since a warehouse names its files by their paths."""
    return tmp_path_factory.mktemp("pages") / "page"


@pytest.fixture(scope="module")
def scored(folder: Path, installed: Path) -> Path:
    """What the command leaves with which most pages begin, so that it does nothing more there."""
    clear(folder)
    shell(f"{BEGINNING} --warehouse warehouse", folder, installed)
    return (folder / "warehouse").rename(folder.with_name("scored"))


def clear(folder: Path) -> None:
    rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "data").symlink_to(ROOT / "data")
    places = {"claude-code": ".claude/projects", "codex": ".codex/sessions"}
    for name, place in {**places, "pi": ".pi/agent/sessions"}.items():
        copytree(GOLDEN / "imports" / name, folder / place)  # in the home of its shell


@pytest.mark.process
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.telling] * (page == TUTORIAL)) for page in RUN],
    ids=name,
)
def test_the_blocks_of_a_page_are_run_and_print_what_it_shows(
    page: Path, folder: Path, scored: Path, installed: Path
) -> None:
    """By the command of the wheel, which knows no checkout."""
    clear(folder)
    shown = [block for block in blocks(page) if block.is_run]
    if any(BEGINNING in block.text for block in shown):
        copytree(scored, folder / "warehouse")
    for block, output in zip(shown, outputs(shown, folder, installed), strict=True):
        line = missing(block.shown, output)
        assert line is None, f"{block.text}\n{line}\nis not in\n{output}"
    with_sql = [block.text for block in blocks(page) if block.language == "sql"]
    if with_sql:
        with connect(folder / "warehouse") as connection:
            for query in with_sql:
                assert connection.execute(query).fetchall() is not None


def test_shown_output_is_below_its_command() -> None:
    assert len([block for page in PAGES for block in blocks(page) if block.shown]) > 20
    assert [(name(page), text) for page in PAGES for text in loose_outputs(page)] == []


def test_every_block_is_run_or_is_a_picture() -> None:
    tested_elsewhere = {"questions.md": "test_questions.py"}
    for page in PAGES:
        languages = {block.language for block in blocks(page)}
        assert languages <= {"sh", "python", "pycon", "sql", "text", "toml", "json"}, name(page)
        is_run = page in RUN or page == README or page.name in tested_elsewhere
        assert is_run or not languages & {"python", "sql"}, name(page)


def test_links_lead_somewhere() -> None:
    every = [(page, link) for page in PAGES for link in links(page)]
    own = [(page, link) for page, link in every if not re.match(r"[a-z]+:", link)]
    assert len(own) > 100
    for page, link in own:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        assert not anchor or anchor in anchors(target), f"{name(page)}: {link}"


@pytest.mark.parametrize(
    ("page", "pattern", "form"),
    [
        (CONTRIBUTING, r"`((?:docs|kp_batch|tests)/[\w/-]*(?:\.\w+)?)`", "{}"),
        (CONTRIBUTING, r"python -m\s(tests[.\w]+)", "{}"),
        (OF_TESTS, r"`([a-z]\w*(?:/\w*)*(?:\.py|/))`", "tests/{}"),
        (SECURITY, r"`(tests/[\w/]+)`", "{}"),
        (SECURITY, r"`(test_\w+)`", "tests/**/{}.py"),
    ],
    ids=["contributing", "contributing-modules", "tests", "security", "security-tests"],
)
def test_the_files_that_contributors_are_shown_exist(page: Path, pattern: str, form: str) -> None:
    shown = set(re.findall(pattern, page.read_text("utf-8")))
    assert shown
    assert [each for each in shown if not _exists(each, form)] == []


def _exists(shown: str, form: str) -> bool:
    """Whether a path, or a module that Python can run, is there."""
    if not shown.startswith("tests."):
        return any(ROOT.glob(form.format(shown.rstrip("/"))))
    path = ROOT.joinpath(*shown.split("."))
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_the_versions_that_contributors_are_shown_exist() -> None:
    text = CONTRIBUTING.read_text("utf-8")
    code = "".join(path.read_text("utf-8") for path in (ROOT / "kp_batch").rglob("*.py"))
    versions = set(re.findall(r"`(\w+_VERSION|IMPORTER)`", text))
    assert "IMPORTER" in versions
    assert [version for version in versions if f"\n{version} = " not in code] == []


def test_the_map_names_every_page() -> None:
    starts = DOCS / "README.md", CONTRIBUTING
    linked = {(page.parent / link).resolve() for page in starts for link in links(page)}
    assert linked >= set(PAGES) - {README, DOCS / "README.md"}


def test_pages_name_no_command_that_is_not_there() -> None:
    there = set(re.findall(r"^## kp-batch (\S+)", "\n".join(commands()), re.MULTILINE))
    command = re.compile(r"kp-batch\s([a-z][a-z-]+)")
    named = {page: set(command.findall(page.read_text("utf-8"))) for page in PAGES}
    assert any(named.values())
    assert {name(page): words - there for page, words in named.items() if words - there} == {}


def test_lines_fit_into_110_columns() -> None:
    for page in PAGES:
        if page.name in PARTS:
            continue
        fenced = False
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            fenced ^= line.startswith("```")
            fits = len(line) <= 110 or fenced or line.startswith("|")
            assert fits, f"{name(page)}:{number} has {len(line)} characters"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page == "questions.md" else ())
        for page in PARTS
    ],
)
def test_generated_parts_of_the_reference_are_up_to_date(page: str) -> None:
    there = (REFERENCE / page).read_text("utf-8")
    assert written(page) == there, "write it anew: python -m tests.support.docs.reference"


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """The columns of each view, with their types."""
    folder = tmp_path_factory.mktemp("views")
    publish_nothing(folder)
    with connect(folder) as connection:
        return {
            view: [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {view}").fetchall()]
            for view in VIEWS
        }


def test_every_column_of_every_view_is_documented(views: dict[str, list[tuple[str, str]]]) -> None:
    for view, columns in views.items():
        documented = [(row[0], row[1]) for row in rows(REFERENCE / "tables.md", f"`{view}`")]
        assert documented == [
            (f"`{column}`", kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ").lower())
            for column, kind in columns
        ], view


def test_every_table_is_documented() -> None:
    documented = {
        row[0]: row[1] for row in rows(REFERENCE / "tables.md", "The Delta tables themselves")
    }
    assert set(documented) == {f"`{table}`" for table in TABLES}
    for table, schema in TABLES.items():
        if table not in VIEWS:
            assert re.findall(r"`(\w+)`", documented[f"`{table}`"]) == list(schema)
            continue
        view = {row[0].strip("`") for row in rows(REFERENCE / "tables.md", f"`{table}`")}
        named = set(re.findall(r"`(\w+)`", documented[f"`{table}`"]))
        assert set(schema) - view == named


def leaves(schema: Any, path: str = "") -> list[str]:
    paths: list[str] = []
    for column, dtype in schema.items():
        inner, at = dtype, f"{path}{column}"
        if isinstance(inner, pl.List):
            inner, at = inner.inner, f"{at}[]"
        if isinstance(inner, pl.Struct):
            paths += leaves(inner.to_schema(), f"{at}.")
        else:
            paths.append(at)
    return paths


def test_every_field_of_a_trace_is_documented() -> None:
    documented = {row[0].strip("`"): row[2] for row in rows(REFERENCE / "input.md", "The fields")}
    assert list(documented) == leaves(TRACE)
    required = {
        prefix + ".".join(field.path): field.required
        for prefix, fields in (("", FIELDS), ("steps[].", STEP_FIELDS))
        for field in fields.values()
    }
    for path, is_required in documented.items():
        assert (is_required == "yes") == required.get(path, False), path


def test_every_field_that_an_export_adds_is_documented() -> None:
    page = (REFERENCE / "input.md").read_text("utf-8")
    added = set(leaves(EXPORTED)) - set(leaves(TRACE))
    assert added
    assert all(f"`{path.rpartition('.')[2]}`" in page for path in added)


def test_every_format_has_its_row() -> None:
    page = REFERENCE / "formats.md"
    tables = [rows(page, name) for name in ("Names and ids", "Rewritten files", "Not kept")]
    for table in (rows(DOCS / "how-to" / "import.md", "Formats"), *tables):
        names = {name.strip("`") for row in table for name in row[0].split(", ")}
        assert names - {"all"} == FORMATS.keys(), "add its row to each table of formats"


def test_every_reason_is_documented_with_its_message() -> None:
    messages = {
        code.strip("`"): message.strip("`")
        for code, message, _ in rows(REFERENCE / "rejects.md", "Rows and files of an archive")
    }
    assert list(messages) == list(REASONS)
    refused = [*REFUSED, *REFUSED_JSON]
    for code in CHECKS:
        made = [fault_sentence(code, row) for codes, row in refused if code in codes]
        assert messages[code] in made, "give REFUSED the example of the page"
    line = json.dumps('{"id": }')
    assert messages["malformed_json"] == reject_message(["malformed_json"], 46, line)
    assert messages["too_large"] == reject_message(["too_large"], 0, None)


def test_every_refusal_of_an_import_is_documented() -> None:
    documented = {
        row[0].strip("`") for row in rows(REFERENCE / "rejects.md", "What an import refuses")
    }
    package = ROOT / "kp_batch"
    rooms = package / "imports", package / "conversion"
    files = [package / "bounds.py", *(path for room in rooms for path in room.rglob("*.py"))]
    sources = "".join(path.read_text("utf-8") for path in files)
    own = set(re.findall(r'Refused\(\s*\["(\w+)"\]', sources))
    own |= set(re.findall(r'faults=\["(\w+)"\]', sources))
    assert own
    assert own <= documented
    assert all(f'"{code}"' in sources for code in documented)


def test_every_file_of_a_warehouse_is_documented() -> None:
    documented = {row[0].strip("`").rstrip("/") for row in rows(REFERENCE / "files.md")}
    layout, root = Layout(Path("w")), Path("w")
    own = {
        str(value.relative_to(root))
        for var in vars(Layout)
        if isinstance(value := getattr(layout, var), Path) and value != root
    }
    assert own | set(TABLES) <= documented


def test_the_words_of_plans_and_summaries_are_documented() -> None:
    documented = {word for row in rows(REFERENCE / "words.md") for word in row[0].split(", ")}
    counts = {field.name for field in fields(RunCounts)} - {"files", "rows"}
    of_plans = {field.name for field in fields(FileChanges)} | {"rewrite", "domain", "current"}
    # A plan says what will be done, a summary what was: embed, embedded.
    assert [count for count in counts if not count.startswith(tuple(documented))] == []
    assert documented >= of_plans | {"at threshold", "stability index", "rank corr", "overrides"}


def test_every_public_name_is_documented() -> None:
    documented = anchors(REFERENCE / "python.md")
    assert {export.lower() for export in kp_batch.__all__} <= documented


def test_the_public_names_are_all_that_the_package_shows() -> None:
    assert dir(kp_batch) == sorted(kp_batch.__all__)
    assert all(getattr(kp_batch, name).__doc__ for name in dir(kp_batch))


def test_what_is_explained_is_a_message(modules: dict[Path, ast.Module]) -> None:
    there = "\0".join(text for tree in modules.values() for text in strings(tree))
    assert explained(TROUBLESHOOTING)
    assert [message for message in explained(TROUBLESHOOTING) if message not in there] == []


def test_a_message_says_what_to_do_or_is_explained(modules: dict[Path, ast.Module]) -> None:
    known = explained(TROUBLESHOOTING)
    written = all_messages(modules.values())
    assert len(written) > 100
    assert [
        message
        for message in written
        if not says_what_to_do(message) and not any(each in message for each in known)
    ] == []


def test_all_messages_are_listed(modules: dict[Path, ast.Module]) -> None:
    listed = LIST.read_text("utf-8").splitlines()
    assert listed == all_messages(modules.values()), "run python -m tests.docs.messages"


def test_a_message_says_what_to_do_by_the_first_word_of_a_clause() -> None:
    for message in (
        "the disk of ... is full...; free some space",
        "--distinct needs vectors, but ...; leave out --distinct",
        "... is no format: name one instead of auto",
        "no scores are published; to allow it this once: ...",
        "... vectors are not in ...; kp-batch run with ... makes them again",
        "--allow-audit: there is no audit ...; there are ...",
        "the profiles file ... has ...: ...",
    ):
        assert says_what_to_do(message), message
    for message in (
        "cannot read ...: ...",
        "another run is writing to ... (...)",
        "... is skipped: it is a warehouse of kp_batch",
        "... made the table, and nobody may change names",
    ):
        assert not says_what_to_do(message), message


def test_errors_of_the_system_are_documented_with_whether_they_are_retried() -> None:
    numbers = {os.strerror(number): number for number in errno.errorcode}
    documented = rows(TROUBLESHOOTING, "What the system says")
    told = {word: row[2] for row in documented for word in re.findall(r"`([^`]+)`", row[0])}
    assert told
    for words, is_tried in told.items():
        tried = errors.is_passing(OSError(numbers[words], words))
        assert is_tried == ("yes" if tried else "no"), words


@pytest.mark.process
def test_duckdb_says_what_is_documented_of_it(folder: Path, scored: Path) -> None:
    clear(folder)
    catalog = copytree(scored, folder / "warehouse") / "kp.duckdb"
    examples = [
        [cell.strip("`") for cell in row[:2]] for row in rows(TROUBLESHOOTING, WHAT_DUCKDB_SAYS)
    ]
    assert examples
    for message, query in examples:
        with duckdb.connect() as connection:
            connection.execute(f"ATTACH '{catalog}' AS kept (READ_ONLY)")
            if "kept." not in query:
                connection.execute("USE kept")
            with pytest.raises(duckdb.Error, match=re.escape(message)):
                connection.execute(query)


def test_the_page_on_compatibility_has_the_format_that_is_written() -> None:
    page = (DOCS / "compatibility.md").read_text("utf-8")
    assert f"\n| {FORMAT_VERSION} | reads and writes it |\n" in page
