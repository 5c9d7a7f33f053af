"""Dialects of agents that are not read: a trace in one of these alone is refused by its name."""

from collections.abc import Iterable, Iterator, Mapping

from kp_batch.conversion.conversation.attributes import OtelSpan, value_at

# By the beginnings of the names of attributes that only these have.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "MLflow": ("mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"),
    "Langfuse": ("langfuse.observation.", "langfuse.trace."),
    "Laminar": ("lmnr.span.",),
    "Braintrust": ("braintrust.",),
    "Claude Code": ("claude_code.", "llm_request."),
    "LiveKit": ("lk.",),
    "Genkit": ("genkit:",),
    "Haystack": ("haystack.",),
    "Mastra": ("mastra.",),
    "Spring AI": ("spring.ai.",),
    "Weave": ("weave.",),
    "Opik": ("opik.",),
    "HoneyHive": ("honeyhive_", "honeyhive."),
    "AgentOps": ("agentops.span.", "agentops.entity."),
    "traceAI": ("fi.span.kind",),
    "OpenAI Agents": ("agent.span.type",),
    "Prompt flow": ("promptflow.",),
}
_OPERATION = "gen_ai.operation.name"
# What is done with models besides an agent's work.
_NO_AGENTS = (
    *("embeddings", "embedding", "rerank", "reranking", "moderation", "moderations"),
    *("image_generation", "speech", "transcription", "translation", "chain"),
)


def dialect_of(spans: Iterable[OtelSpan]) -> tuple[str, str] | None:
    """The dialect of a trace's spans, and an attribute of it; None if it is in none of these."""
    names = (name for span in spans for name in span.attributes)
    found = ((dialect, name) for name in names for dialect in _dialects(name))
    return next(found, None)


def operation_of(spans: Iterable[OtelSpan]) -> tuple[str, str] | None:
    """OpenTelemetry, and an operation that it does not have; None if no span has one."""
    for span in spans:
        operation = str(value_at(span.attributes, _OPERATION) or "")
        if operation and operation.lower() not in _NO_AGENTS:
            return "OpenTelemetry, with operations of its own", f"{_OPERATION}: {operation}"
    return None


def _dialects(name: str) -> Iterator[str]:
    return (dialect for dialect, starts in _NAMES.items() if name.startswith(starts))
