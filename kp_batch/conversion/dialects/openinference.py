"""OpenInference's dialect of spans: `openinference.span.kind`, `llm.*`, `tool.*`, annotations."""

import re
from collections.abc import Iterator, Mapping, Sequence

from kp_batch.conversion.conversation.attributes import (
    OtelSpan,
    Score,
    agent_name,
    list_at,
    scores_of,
    value_at,
)
from kp_batch.conversion.conversation.messages import (
    ROLES,
    JsonText,
    Message,
    Role,
    ToolCall,
    ToolResult,
    id_text,
    joined,
)
from kp_batch.conversion.conversation.payloads import answer_of, asked_in, messages_in
from kp_batch.conversion.conversation.spans import has_content
from kp_batch.conversion.dialects.dialect import Dialect, Kind, value_of

_HIDDEN = "__REDACTED__"  # replaces content that was left out on purpose
_PART_TEXT = "message_content.text"
_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text")
_REASONING = ("reasoning", "thinking")
# Tools that a provider runs are named by the type of their item, or only occur in the output.
_BY_TYPE = {"web_search_call": "web_search", "file_search_call": "file_search"}
_HOSTED = re.compile(
    r'"type": ?"(?:(?!function_|tool_|custom_tool_)\w+_call|(?:server|mcp)_tool_use)"'
)
_FEEDBACK = {"annotations": "annotation", "evaluations": "evaluation"}
_KIND = "openinference.span.kind"
_KINDS: Mapping[str, Kind] = {
    "LLM": "model",
    "AGENT": "agent",
    "TOOL": "tool",
    "RETRIEVER": "retriever",
}
_OTHERS = ("CHAIN", "EMBEDDING", "RERANKER", "GUARDRAIL", "EVALUATOR", "PROMPT", "UNKNOWN")


def _input(span: OtelSpan) -> object:
    return _shown(_value(span, "input"))


def _result(span: OtelSpan) -> object:
    output = _value(span, "output")
    return _shown(value_at(span.attributes, "retrieval.documents") if output is None else output)


def _value(span: OtelSpan, side: str) -> object:
    """Return the input or the output of a span: JSON or a text."""
    name = f"{side}.value"
    value, kind = (value_at(span.attributes, x) for x in (name, f"{side}.mime_type"))
    return value if kind == "text/plain" else JsonText.of(name, value, or_text=True)


def _scores(span: OtelSpan, scope: str) -> list[Score]:
    return scores_of(
        (value_at(item, f"{one}.name"), value_at(item, f"{one}.score"), span.end or span.start)
        for several, one in _FEEDBACK.items()
        for item in list_at(span.attributes, scope + several)
    )


def _prompt(span: OtelSpan) -> Sequence[Message]:
    messages = _messages(span, "llm.input_messages")
    if messages:
        return messages
    if prompts := _texts(span, "llm.prompts", "prompt.text"):
        return [Message("user", text) for text in prompts]
    return messages_in(_input(span))


def _answer(span: OtelSpan) -> Sequence[Message]:
    messages = _messages(span, "llm.output_messages")
    if hosted := _hosted(_value(span, "output")):
        return hosted
    if has_content(messages):
        return messages
    if choices := _texts(span, "llm.choices", "completion.text"):
        return [Message("assistant", text) for text in choices]
    value = _shown(_value(span, "output"))
    answer = [message for message in messages_in(value) if message.role == "assistant"]
    if not answer and isinstance(value, str) and not messages:
        return [Message("assistant", answer_of(value))]
    return answer


def _hosted(output: object) -> Sequence[Message]:
    """Return an answer with tools that the provider runs; messages only have their names."""
    if not isinstance(output, str) or not _HOSTED.search(output):
        return ()
    return [message for message in messages_in(output) if message.role in ("assistant", "tool")]


def _texts(span: OtelSpan, several: str, one: str) -> list[str]:
    """Return the prompts or answers of models without messages."""
    items = (_shown(value_at(item, one)) for item in list_at(span.attributes, several))
    return [str(text) for text in items if text]


def _messages(span: OtelSpan, name: str) -> list[Message]:
    items = ((_role_of(item), item) for item in list_at(span.attributes, name))
    return [_message(role, item) for role, item in items if role]


def _role_of(item: object) -> Role | None:
    return ROLES.get(str(value_at(item, "message.role") or "").lower())


def _message(role: Role, item: object) -> Message:
    parts = list_at(item, "message.contents")
    whole = _shown(value_at(item, "message.content"))  # the parts repeat it
    texts = _of_kind(parts, _TEXTS) if whole is None else [whole]
    text = joined([each for each in texts if isinstance(each, str)])
    if role == "tool":
        call_id = id_text(value_at(item, "message.tool_call_id"))
        return Message(role, results=(ToolResult(text if texts else None, call_id),))
    reasoning = joined([str(each) for each in _of_kind(parts, _REASONING)])
    return Message(role, text, reasoning, tuple(_calls(item, parts)))


def _of_kind(parts: Sequence[object], kinds: Sequence[str]) -> list[object]:
    """Return the texts of the parts of these kinds."""
    typed = [(value_at(part, "message_content.type") or "text", part) for part in parts]
    texts = (_shown(value_at(part, _PART_TEXT)) for kind, part in typed if kind in kinds)
    return [text for text in texts if text is not None]


def _calls(item: object, parts: Sequence[object]) -> Iterator[ToolCall]:
    """Yield the calls of a message; its parts may repeat some of them."""
    seen: set[str] = set()
    for call in (*parts, *list_at(item, "message.tool_calls")):
        name = value_at(call, "tool_call.function.name")
        id_ = id_text(value_at(call, "tool_call.id"))
        if name is not None and not (id_ and id_ in seen):
            seen.add(id_)
            arguments = value_at(call, "tool_call.function.arguments")
            yield ToolCall(_BY_TYPE.get(str(name), str(name)), arguments, id_)
    if name := value_at(item, "message.function_call_name"):
        yield ToolCall(str(name), value_at(item, "message.function_call_arguments_json"))


def _shown(value: object) -> object:
    return None if value == _HIDDEN else value


DIALECT = Dialect(
    families=("openinference.", "input.", "annotations", "evaluations", "trace."),
    kinds={_KIND: [kind.lower() for kind in (*_KINDS, *_OTHERS)]},
    kind=lambda span: _KINDS.get(str(value_at(span.attributes, _KIND) or "").upper()),
    prompt=_prompt,
    answer=_answer,
    asked=lambda span: _messages(span, "llm.input_messages") or asked_in(_input(span)),
    answered=_answer,
    agent=lambda span: agent_name(span.name),
    tool=value_of("tool.name"),
    call_id=value_of("tool.id"),
    arguments=_input,
    result=_result,
    input=_input,
    scores=lambda span: _scores(span, ""),
    of_trace=lambda span: _scores(span, "trace."),
)
