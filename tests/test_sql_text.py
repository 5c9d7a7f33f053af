"""Nothing that a file says becomes SQL: one module makes it, and no other puts texts together."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kp_batch
from kp_batch.duck import (
    SQL,
    columns,
    identifier,
    joined,
    literal,
    read_parquet,
    set_variables,
    sql,
    statement,
)

_CONNECTION = duckdb.connect()
_PACKAGE = Path(kp_batch.__file__).parent
_MAKES_SQL = _PACKAGE / "duck.py"
_SHOWN = "kp-batch sql"  # a command that users are shown
_SHOWS = ("report/finding.py", "report/kinds/")  # queries that users are shown, and none is run
_ALLOWED = {
    ("operations/ask.py", "SQL"),  # a condition, which the caller writes
    ("exports/choosing.py", "SQL"),  # what DuckDB tells of a relation, as SQL
    ("warehouse/catalog.py", "sub"),  # of a file of SQL, by what is in another
    ("warehouse/catalog.py", "SQL"),  # what DuckDB makes of one SELECT
    ("warehouse/snapshot.py", "SQL"),  # a type of a fixed list
}
_SQL = re.compile(
    r"^\W*(SELECT|FROM|WITH|CREATE|INSERT|DELETE|UPDATE|COPY|ATTACH|DETACH|SET|RESET|USE|ALTER|DROP"
    r"|PRAGMA|CALL|INSTALL|LOAD|ANTI|SEMI|JOIN|WHERE|ORDER|LIMIT|VACUUM|EXPLAIN|VALUES|ANALYZE"
    r"|CHECKPOINT|DESCRIBE|SUMMARIZE|SHOW|EXPORT|IMPORT|MERGE|TRUNCATE|PIVOT|UNION|GROUP|HAVING)\b"
    r"|\b(SELECT|FROM|WHERE|JOIN|AS|LIMIT|ORDER BY|BETWEEN|LIKE|IN)\b|::[A-Z]|\bread_\w+\(|COPY\b"
)


def _texts(node: ast.AST) -> str:
    """The texts of an expression that puts texts together, of what it has at hand."""
    return "".join(
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def _puts_together(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, ast.Add | ast.Mod)
    return _called(node) in {"format", "format_map", "join", "replace", "substitute"}


def _called(node: ast.AST) -> str | None:
    """The name of a method that is called, or of a function."""
    if not isinstance(node, ast.Call):
        return None
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None)


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, list[ast.AST]]:
    """What is assigned to each name."""
    values: dict[str, list[ast.AST]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            for name in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(name, ast.Name):
                    values.setdefault(name.id, []).append(node.value)
    return values


def _made_of_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines of a module that put SQL together, and the SQL, or by what it is made."""
    constants = _assigned(tree.body)  # which `CONSTANT.format(…)` has not at hand
    names = _assigned(ast.walk(tree))
    runs = any(_runs(part) for part in ast.walk(tree))
    for node in ast.walk(tree):
        if _puts_together(node):
            named = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
            parts = [node, *(value for name in named for value in constants.get(name, ()))]
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                parts += names.get(node.target.id, [])
            text = "".join(map(_texts, parts))
            if _SQL.search(text):
                yield node.lineno, text
        elif isinstance(node, ast.Call) and _runs(node) and node.args:
            query = node.args[0]
            named_before = names.get(query.id, []) if isinstance(query, ast.Name) else []
            if any(map(_puts_together, [query, *named_before])):
                yield node.lineno, _texts(query)
        elif (called := _called(node)) == "SQL" or (called in {"sub", "subn"} and runs):
            yield node.lineno, str(called)


def _runs(node: ast.AST) -> bool:
    """Whether it is a call of a connection that runs SQL."""
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and _called(node) in {"execute", "executemany", "sql", "query"}


@pytest.mark.telling
@pytest.mark.slow
def test_no_other_module_puts_sql_together(modules: dict[Path, ast.Module]) -> None:
    assert len(modules) > 100
    statements = [
        (path.relative_to(_PACKAGE).as_posix(), text)
        for path, tree in modules.items()
        if path != _MAKES_SQL
        for _, text in _made_of_texts(tree)
        if _SHOWN not in text
    ]
    run = [each for each in statements if not each[0].startswith(_SHOWS)]
    assert sorted(run) == sorted(_ALLOWED)


def test_modules_whose_queries_are_shown_run_none(modules: dict[Path, ast.Module]) -> None:
    shown = {
        path: tree
        for path, tree in modules.items()
        if path.relative_to(_PACKAGE).as_posix().startswith(_SHOWS)
    }
    assert len(shown) > len(_SHOWS)
    assert not [path for path, tree in shown.items() if any(map(_runs, ast.walk(tree)))]


@pytest.mark.parametrize(
    "source",
    [
        'connection.execute(f"SET VARIABLE {name} = 1")',
        'connection.execute(f"CREATE VIEW {name} AS FROM {rows}")',
        'connection.sql("SELECT * FROM " + name)',
        'connection.sql("FROM %s" % name)',
        'connection.sql("FROM {}".format(name))',
        '_QUERY = "SELECT {} FROM units"\nconnection.sql(_QUERY.format(name))',
        'relation.filter(f"day >= {day}::DATE")',
        'connection.sql(" JOIN ".join(names))',
        "connection.execute(f\"COPY rows TO '{path}'\")",
        "connection.sql(SQL(name))",
        'connection.sql(re.sub("x", name, query))',
        '_QUERY: Final = "SELECT {} FROM units"\nconnection.sql(_QUERY.format(name))',
        'query = "SELECT a FROM b"\nquery += name',
        'query += f" WHERE {name}"',
        'connection.execute(f"{name}")',
        'query = f"{name}"\nconnection.execute(query)',
        "connection.query(name + other)",
        'text = f"VACUUM {name}"',
        'text = f"EXPLAIN {name}"',
        'text = f"VALUES ({name})"',
    ],
)
def test_what_puts_sql_together_is_found(source: str) -> None:
    assert list(_made_of_texts(ast.parse(source)))


@given(st.text())
def test_a_literal_is_the_text(text: str) -> None:
    if "\0" in text:
        with pytest.raises(ValueError, match="NUL"):
            literal(text)
        return
    query = statement("SELECT $text", text=literal(text))
    assert _CONNECTION.execute(query).fetchall() == [(text,)]


@given(st.text(min_size=1))
def test_an_identifier_is_the_name(name: str) -> None:
    if "\0" in name:
        with pytest.raises(ValueError, match="NUL"):
            identifier(name)
        return
    query = statement("SELECT 1 AS $name", name=identifier(name))
    assert _CONNECTION.sql(query).columns == [name]


@pytest.mark.parametrize(
    "value",
    ["x'y", "a b", "a;b", "", "1", "a.", ".a", "A", 'a"', "a\n", True, None, float("nan"), [1]],
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"\$value is no SQL, number or plain name"):
        statement("SELECT $value", value=value)


def test_names_and_numbers_take_their_places() -> None:
    query = statement("SELECT $a, $b FROM $c", a=0.1, b=-3, c="published.scores")
    assert query == "SELECT 0.1, -3 FROM published.scores"
    assert isinstance(query, SQL)
    assert joined([SQL("a"), SQL("b")]) == "a, b"
    assert columns(["day", 'x"y'], "new") == 'new."day", new."x""y"'


def test_what_takes_a_place_is_not_filled_again() -> None:
    inner = literal("$b")
    assert statement("SELECT $a, $b", a=inner, b=1) == "SELECT '$b', 1"


def test_a_file_of_sql_is_filled_by_the_same_way() -> None:
    with pytest.raises(TypeError, match="plain name"):
        sql("kp_batch.planning.changes", "timeline.sql", scores="'; COPY x TO 'y")


def test_files_are_read_by_their_names_alone(tmp_path: Path) -> None:
    for number, name in enumerate(["a[b]*.parquet", "ab.parquet", "it's.parquet"]):
        with duckdb.connect() as connection:
            connection.sql(statement("SELECT $number AS n", number=number)).write_parquet(
                str(tmp_path / name)
            )
    with duckdb.connect() as connection:
        for number, name in enumerate(["a[b]*.parquet", "ab.parquet", "it's.parquet"]):
            rows = read_parquet(tmp_path / name)
            assert connection.sql(statement("FROM $rows", rows=rows)).fetchall() == [(number,)]


def test_variables_hold_any_value() -> None:
    with duckdb.connect() as connection:
        set_variables(connection, name="x'; DROP", days=[1, 2])
        rows = connection.execute("SELECT getvariable('name'), getvariable('days')").fetchall()
    assert rows == [("x'; DROP", [1, 2])]
