"""One row of each format in Parquet."""

START = "2026-03-01T10:00:00Z"


# A trace of one row, and the column that holds its text.
PHOENIX = {
    "context.trace_id": "good",
    "context.span_id": "s",
    "parent_id": None,
    "start_time": START,
    "end_time": START,
    "attributes.openinference.span.kind": "LLM",
    "attributes.input.value": "do it",
    "attributes.output.value": "done",
}


LANGSMITH = {
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


LANGFUSE = {
    "id": "good",
    "trace_id": "good",
    "type": "GENERATION",
    "start_time": START,
    "end_time": START,
    "input": "do it",
    "output": "done",
}


SCOUT = {
    "transcript_id": "good",
    "date": START,
    "messages": '[{"role": "user", "content": "do it"}, {"role": "assistant", "content": "done"}]',
}
