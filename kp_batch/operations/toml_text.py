"""Settings as text in TOML."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def toml_tables(name: str, tables: Mapping[str, Any]) -> Iterator[str]:
    """Yield tables of TOML by the names of their keys; a list is an array of tables."""
    for key, value in tables.items():
        head = f"[{name}.{toml_value(key)}]"
        for table in value if isinstance(value, list) else [value]:
            yield f"\n[{head}]\n" if isinstance(value, list) else f"\n{head}\n"
            yield from (f"{field} = {toml_value(each)}\n" for field, each in table.items())


def toml_value(value: Any) -> str:
    """Return a text, number or list as TOML, which writes them as JSON does."""
    text = json.dumps(value, ensure_ascii=False)  # TOML has no pairs of surrogates
    return text.replace("\x7f", "\\u007f")  # which TOML does not have as it is
