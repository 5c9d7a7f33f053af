"""One row of each format in Parquet."""

from collections.abc import Mapping
from typing import Any, NamedTuple

START = "2026-03-01T10:00:00Z"


class Row(NamedTuple):
    """A trace of one row, whose name is `good`, and the column that holds its text."""

    format: str
    columns: Mapping[str, Any]
    text: str

    def named(self, trace: str) -> dict[str, Any]:
        """The row of another trace."""
        return {name: trace if value == "good" else value for name, value in self.columns.items()}


_PHOENIX = {
    "context.trace_id": "good",
    "context.span_id": "s",
    "parent_id": None,
    "start_time": START,
    "end_time": START,
    "attributes.openinference.span.kind": "LLM",
    "attributes.input.value": "do it",
    "attributes.output.value": "done",
}
_LANGSMITH = {
    "id": "good",
    "trace_id": "good",
    "run_type": "llm",
    "status": "success",
    "start_time": START,
    "end_time": START,
    "dotted_order": "20260301T100000000000Zgood",
    "inputs": '{"input": "do it"}',
    "outputs": '{"output": "done"}',
}
_LANGFUSE = {
    "id": "good",
    "trace_id": "good",
    "type": "GENERATION",
    "start_time": START,
    "end_time": START,
    "input": "do it",
    "output": "done",
}
_SCOUT = {
    "transcript_id": "good",
    "date": START,
    "messages": '[{"role": "user", "content": "do it"}, {"role": "assistant", "content": "done"}]',
}
_MESSAGES = {
    "id": "good",
    "created_at": START,
    "messages": _SCOUT["messages"],
}
ROWS: Mapping[str, Row] = {
    "phoenix": Row("phoenix", _PHOENIX, "attributes.output.value"),
    "langsmith in Parquet": Row("langsmith", _LANGSMITH, "outputs"),
    "langfuse in Parquet": Row("langfuse", _LANGFUSE, "output"),
    "messages in Parquet": Row("messages", _MESSAGES, "messages"),
    "scout": Row("inspect", _SCOUT, "messages"),
}
