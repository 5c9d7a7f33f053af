"""Agents' dialects that are not read: a trace with no other dialect is refused by its name."""

from collections.abc import Iterable, Mapping, Sequence

from kp_batch.conversion.conversation.attributes import OtelSpan, value_at
from kp_batch.conversion.conversation.messages import object_in

# The attribute that shows what a span is, and its values for agents; without any, every value
# counts.
_KINDS: Mapping[str, tuple[str, Sequence[str]]] = {
    "langfuse.observation.type": ("Langfuse", ("generation", "agent", "tool")),
    "lmnr.span.type": ("Laminar", ("llm", "tool", "cached")),
    "fi.span.kind": ("traceAI", ("llm", "tool", "agent")),
    "braintrust.span_attributes": ("Braintrust", ("llm", "tool")),
    "genkit:metadata:subtype": ("Genkit", ("model", "tool", "tool.v2", "agent")),
    "mastra.span.type": ("Mastra", ("agent_run", "model_generation", "tool_call", "mcp_tool_call")),
    "agentops.span.kind": ("AgentOps", ("llm", "tool", "agent")),
    "honeyhive_event_type": ("HoneyHive", ("model", "tool")),
    "spring.ai.kind": ("Spring AI", ("chat_client", "tool_call")),
    "lk.input_text": ("LiveKit", ()),
    "lk.response.text": ("LiveKit", ()),
    "lk.function_tool.output": ("LiveKit", ()),
}
_SPANS = {"claude_code.": "Claude Code", "haystack.agent.": "Haystack"}  # by their names
OPERATION = "gen_ai.operation.name"
MEMORY = (
    *("search_memory", "create_memory", "update_memory", "upsert_memory", "delete_memory"),
    *("create_memory_store", "delete_memory_store"),
)
# Uses of models besides an agent's work.
NO_AGENTS = (
    *("embeddings", "embedding", "rerank", "reranking", "moderation", "moderations"),
    *("image", "image_generation", "text_to_image", "audio", "speech", "text_to_speech"),
    *("speech_to_text", "transcription", "translation", "vectordb", "chain", "parser"),
)


def dialect_of(spans: Iterable[OtelSpan]) -> tuple[str, str] | None:
    """Return the dialect of a trace's spans, with an example; None if it is not one of these."""
    for span in spans:
        for start, dialect in _SPANS.items():
            if span.name.startswith(start):
                return dialect, span.name
        for name, (dialect, kinds) in _KINDS.items():
            value = value_at(span.attributes, name)
            kind = str(object_in(value).get("type") or value).lower()  # Braintrust's is nested
            if value is not None and (not kinds or kind in kinds):
                return dialect, name
    return None


def is_of_memory(span: OtelSpan) -> bool:
    """Whether a span reads or writes agents' memory, which may be outside of any run."""
    return value_at(span.attributes, OPERATION) in MEMORY


def operation_of(spans: Iterable[OtelSpan]) -> tuple[str, str] | None:
    """Return OpenTelemetry and an unknown operation of a span; None if there is none."""
    for span in spans:
        operation = str(value_at(span.attributes, OPERATION) or "")
        if operation and operation.lower() not in (*NO_AGENTS, *MEMORY):
            return "OpenTelemetry, with operations of its own", f"{OPERATION}: {operation}"
    return None
