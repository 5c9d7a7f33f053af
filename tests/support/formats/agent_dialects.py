"""How makers record the steps of `agent_runs` in spans of OpenTelemetry: attributes, and events."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.formats.agent_runs import Step

Row = dict[str, Any]
# A span's attributes, and its events by their names.
SpanContent = tuple[Row, list[tuple[str, Row]]]


def _calls(message: Row) -> list[tuple[str, str, str]]:
    """The id, the name and the arguments of each call of a message, in JSON."""
    calls = message.get("tool_calls", ())
    return [(x["id"], x["function"]["name"], x["function"]["arguments"]) for x in calls]


def _run(step: "Step") -> Row:
    """A tool's run, or a retriever's, by name alone."""
    operation = {"tool": "execute_tool", "retriever": "retrieval"}[step.kind]
    tool = {"gen_ai.tool.name": step.name, "gen_ai.tool.call.id": step.call}
    return {"gen_ai.operation.name": operation, **tool}


def _retrieved(step: "Step") -> SpanContent:
    """A retriever, for which none of these has a span of its own kind."""
    query = {"gen_ai.retrieval.query.text": json.dumps(step.given)}
    return {**_run(step), **query, "gen_ai.retrieval.documents": step.answer}, []


def ai_sdk(step: "Step") -> SpanContent:
    """As Vercel's AI SDK does up to 6."""
    if step.kind == "agent":
        return {"ai.operationId": "ai.generateText", "ai.telemetry.functionId": step.name}, []
    if step.kind == "tool":
        tool = {"name": step.name, "id": step.call, "args": json.dumps(step.given)}
        told = {f"ai.toolCall.{name}": each for name, each in tool.items()}
        return {"ai.operationId": "ai.toolCall", **told, "ai.toolCall.result": step.answer}, []
    if step.kind == "retriever":
        return _retrieved(step)
    prompt = json.dumps([_model_message(message) for message in step.given])
    told = {"ai.operationId": "ai.streamText.doStream", "ai.prompt.messages": prompt}
    if step.answer is None:
        return told, []
    calls = [
        {"toolCallId": id_, "toolName": name, "input": arguments}
        for id_, name, arguments in _calls(step.answer)
    ]
    answer = {"ai.response.text": step.answer["content"]}
    return told | answer | ({"ai.response.toolCalls": json.dumps(calls)} if calls else {}), []


def _model_message(message: Row) -> Row:
    if message["role"] == "tool":
        output = {"type": "text", "value": message["content"]}
        given = {"type": "tool-result", "toolCallId": message["tool_call_id"], "toolName": "x"}
        return {"role": "tool", "content": [{**given, "output": output}]}
    parts: list[Row] = [{"type": "text", "text": message["content"]}]
    for id_, name, arguments in _calls(message):
        call = {"toolCallId": id_, "toolName": name, "input": json.loads(arguments)}
        parts.append({"type": "tool-call", **call})
    return {"role": message["role"], "content": parts}


def openllmetry(step: "Step") -> SpanContent:
    """As OpenLLMetry does, before it had messages in one attribute."""
    if step.kind == "agent":
        told = {"traceloop.span.kind": "agent", "traceloop.entity.name": step.name}
        if step.given is not None:
            told["traceloop.entity.input"] = json.dumps({"args": [step.given], "kwargs": {}})
            told["traceloop.entity.output"] = json.dumps(step.answer)
        return told, []
    if step.kind == "tool":
        given = json.dumps({"args": [], "kwargs": step.given})
        told = {"traceloop.span.kind": "tool", "traceloop.entity.name": step.name}
        output = None if step.answer is None else json.dumps(step.answer)
        return {**told, "traceloop.entity.input": given, "traceloop.entity.output": output}, []
    if step.kind == "retriever":
        return _retrieved(step)
    told = {"llm.request.type": "chat", **_numbered("gen_ai.prompt", step.given)}
    return told | _numbered("gen_ai.completion", [step.answer] if step.answer else []), []


def _numbered(prefix: str, messages: list[Row]) -> Row:
    told: Row = {}
    for number, message in enumerate(messages):
        place = f"{prefix}.{number}"
        for name in ("role", "content", "tool_call_id"):
            told[f"{place}.{name}"] = message.get(name)
        for index, call in enumerate(_calls(message)):
            parts = zip(("id", "name", "arguments"), call, strict=True)
            told |= {f"{place}.tool_calls.{index}.{name}": part for name, part in parts}
    return told


def strands(step: "Step") -> SpanContent:
    """As Strands does, in events of blocks."""
    system = {"gen_ai.system": "strands-agents"}
    if step.kind == "agent":
        return {**system, "gen_ai.operation.name": "invoke_agent"}, []
    if step.kind == "tool":
        given = ("gen_ai.tool.message", {"role": "tool", "content": json.dumps(step.given)})
        events = [] if step.answer is None else [given, _choice([{"text": step.answer}])]
        return {**system, **_run(step)}, events
    if step.kind == "retriever":
        return _retrieved(step)
    events = [
        (f"gen_ai.{message['role']}.message", {"content": json.dumps(_blocks(message))})
        for message in step.given
    ]
    answer = [] if step.answer is None else [_choice(_blocks(step.answer))]
    return {**system, "gen_ai.operation.name": "chat"}, [*events, *answer]


def _choice(blocks: list[Row]) -> tuple[str, Row]:
    return "gen_ai.choice", {"message": json.dumps(blocks)}


def _blocks(message: Row) -> list[Row]:
    text = {"text": message["content"]}
    if message["role"] == "tool":
        return [{"toolResult": {"toolUseId": message["tool_call_id"], "content": [text]}}]
    calls = [
        {"toolUse": {"toolUseId": id_, "name": name, "input": json.loads(arguments)}}
        for id_, name, arguments in _calls(message)
    ]
    return [text, *calls]


def pydantic_ai(step: "Step") -> SpanContent:
    """As Pydantic AI does up to 0.8."""
    if step.kind == "agent":
        return {"agent_name": step.name, "model_name": "gpt-x"}, []
    if step.kind == "tool":
        tool = {"gen_ai.tool.name": step.name, "gen_ai.tool.call.id": step.call}
        told = {"tool_arguments": json.dumps(step.given), "tool_response": step.answer}
        return tool | told, []
    if step.kind == "retriever":
        return _retrieved(step)
    events = [
        {**_event(message), "event.name": f"gen_ai.{message['role']}.message"}
        for message in step.given
    ]
    if step.answer is not None:
        events.append({"index": 0, "message": _event(step.answer), "event.name": "gen_ai.choice"})
    return {"gen_ai.operation.name": "chat", "events": json.dumps(events)}, []


def _event(message: Row) -> Row:
    if message["role"] == "tool":
        return {"role": "tool", "content": message["content"], "id": message["tool_call_id"]}
    return message


def adk(step: "Step") -> SpanContent:
    """As Google's Agent Development Kit 1 does."""
    if step.kind == "agent":
        return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": step.name}, []
    if step.kind == "retriever":
        return _retrieved(step)
    told: Row = {"gen_ai.system": "gcp.vertex.agent"}
    if step.kind == "tool":
        response = None if step.answer is None else json.dumps({"result": step.answer})
        told |= {**_run(step), "gcp.vertex.agent.tool_response": response}
        return told | {"gcp.vertex.agent.tool_call_args": json.dumps(step.given)}, []
    contents = [_content(message) for message in step.given]
    told["gcp.vertex.agent.llm_request"] = json.dumps({"model": "gemini", "contents": contents})
    answer = {} if step.answer is None else {"content": _content(step.answer)}
    return told | {"gcp.vertex.agent.llm_response": json.dumps(answer)}, []


def _content(message: Row) -> Row:
    if message["role"] == "tool":
        given = {"name": "x", "response": {"result": message["content"]}}
        return {"role": "user", "parts": [{"function_response": given}]}
    calls = [
        {"function_call": {"name": name, "args": json.loads(arguments)}}
        for _, name, arguments in _calls(message)
    ]
    role = {"user": "user"}.get(message["role"], "model")
    return {"role": role, "parts": [{"text": message["content"]}, *calls]}


def langsmith_exporter(step: "Step") -> SpanContent:
    """As LangSmith's exporter does, whose agents are chains."""
    kind = {"agent": "chain", "model": "llm"}.get(step.kind, step.kind)
    operations = {"llm": "chat", "tool": "execute_tool", "retriever": "embeddings"}
    told = {"langsmith.span.kind": kind, "gen_ai.operation.name": operations.get(kind, kind)}
    given, answer = step.given, step.answer
    if step.kind == "model":
        given, answer = {"messages": given}, answer and {"messages": [answer]}
    elif answer is not None:
        content = {"type": "tool", "tool_call_id": step.call, "content": answer}
        answer = {"output": content}
    payloads = {"gen_ai.prompt": given, "gen_ai.completion": answer}
    return told | {x: None if y is None else json.dumps(y) for x, y in payloads.items()}, []


def mlflow(step: "Step") -> SpanContent:
    """As MLflow's exporter does, each attribute as JSON."""
    given, answer = step.given, step.answer
    if step.kind == "model":
        given = {"messages": given} if isinstance(given, list) else given
        answer = {"choices": [{"message": answer}]} if isinstance(answer, dict) else answer
    told = {
        "mlflow.traceRequestId": "tr-0af7651916cd43dd8448eb211c80319c",
        "mlflow.spanType": {"model": "CHAT_MODEL"}.get(step.kind, step.kind.upper()),
        "mlflow.spanInputs": given,
        "mlflow.spanOutputs": answer,
        "tool_call_id": step.call or None,  # as LangChain's tools have it
    }
    return {name: json.dumps(each) for name, each in told.items() if each is not None}, []


DIALECTS: Mapping[str, Callable[["Step"], SpanContent]] = {
    "otlp of the AI SDK": ai_sdk,
    "otlp of OpenLLMetry": openllmetry,
    "otlp of Strands": strands,
    "otlp of Pydantic AI": pydantic_ai,
    "otlp of ADK": adk,
    "otlp of LangSmith": langsmith_exporter,
    "otlp of MLflow": mlflow,
}
