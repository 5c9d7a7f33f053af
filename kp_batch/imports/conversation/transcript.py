"""A trace's objective and steps, from messages and tools in the order of time.

What a system records of an agent repeats itself: each call of a model is given all that was said
before, and a tool call stands in a message, in a span of its own, and in later messages. Here each
is counted once.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kp_batch.imports.conversation.messages import (
    Message,
    ToolCall,
    ToolResult,
    as_text,
    compact,
    parse_json_deep,
)

Step = dict[str, object]  # as `schemas.TRACE` has it


@dataclass
class Transcript:
    """Takes what happened in its order."""

    recovery: bool = False  # whether the first thought after a failed tool is an error recovery
    objective: str = ""  # the first user message
    steps: list[Step] = field(default_factory=list[Step])
    _users: Counter[str] = field(default_factory=Counter[str])
    _results: Counter[str] = field(default_factory=Counter[str])
    _open: list[ToolCall] = field(default_factory=list[ToolCall])  # told, and not run yet
    _ahead: list[ToolCall] = field(default_factory=list[ToolCall])  # run, and not told yet
    _failed: bool = False

    def add_conversation(self, messages: Iterable[Message]) -> None:
        """Take a conversation, in which nothing stands twice."""
        for message in messages:
            if message.role == "assistant":
                self.add_answer(message)
            else:
                self._add_message(message)

    def add_answer(self, message: Message) -> None:
        """Take what the assistant says: a thought, and tool calls."""
        if message.thought:
            self._add("error_recovery" if self._failed else "thought", message.thought)
            self._failed = False
        for call in message.calls:
            ran = _taken(self._ahead, call)
            if ran:
                self._results[f"id {call.id}"] += not ran.id
            else:
                self._call(call)
                self._open.append(call)
        for result in message.results:  # of tools that the model's provider runs
            self._observe(result)

    def add_prompt(self, messages: Iterable[Message]) -> None:
        """Take the input of a model's call: of it, what the user and tools said since the last."""
        users, results = Counter[str](), Counter[str]()
        for message in messages:
            for result in message.results:
                results[_key(result)] += 1
                if results[_key(result)] > self._results[_key(result)]:
                    self._observe(result)
            if message.role == "user" and message.text:
                users[message.text] += 1
                if users[message.text] > self._users[message.text]:
                    self._add_user(message.text)

    def add_tool_run(self, call: ToolCall, result: ToolResult) -> None:
        """Take the run of a tool: its call, unless a message had it, and its result."""
        told = _taken(self._open, call)
        if not told and isinstance(parse_json_deep(call.arguments), str):
            # Arguments that are no JSON, as LangChain writes them: then the name has to do.
            told = _taken(self._open, replace(call, arguments=None))
        if not told:
            self._call(call)
            self._ahead.append(call)
        named = result.id or call.id or (told.id if told else "")
        if not (named and self._results[f"id {named}"]):
            self._observe(ToolResult(result.content, named, result.failed))

    def _add_message(self, message: Message) -> None:
        for result in message.results:
            self._observe(result)
        if message.role == "user" and (message.text or not message.results):
            self._add_user(message.text)

    def _add_user(self, text: str) -> None:
        self._users[text] += 1
        if not self.objective:
            self.objective = text
        else:
            self._add("observation", text)

    def _observe(self, result: ToolResult) -> None:
        self._failed = self._failed or (self.recovery and result.failed)
        if result.content is None:
            return
        # Told again, it may have lost its id, or gained one: see `add_answer`.
        self._results.update({_key(result), _key(ToolResult(result.content))})
        self._add("observation", as_text(result.content))

    def _call(self, call: ToolCall) -> None:
        given = call.arguments
        self._add(
            "tool_call",
            tool={"name": call.name, "mcp_server": call.server},
            given=None if given is None else as_text(given),
        )

    def _add(
        self,
        kind: str,
        content: str | None = None,
        tool: dict[str, str | None] | None = None,
        given: str | None = None,
    ) -> None:
        self.steps.append(
            {
                "step_id": len(self.steps),
                "type": kind,
                "content": content,
                "tool": tool,
                "input": given,
                "output_summary": None,
                "latency_ms": None,
            }
        )


def _key(result: ToolResult) -> str:
    """What a result is known by when it is told again."""
    return f"id {result.id}" if result.id else f"content {compact(parse_json_deep(result.content))}"


def _taken(calls: list[ToolCall], call: ToolCall) -> ToolCall | None:
    """Take the call out of a list that tells of the same one; None if there is none."""
    same = [each for each in calls if each.is_same_as(call)]
    if not same:
        return None
    given = parse_json_deep(call.arguments)
    alike = (each for each in same if parse_json_deep(each.arguments) == given)
    taken = next(alike, same[0])
    calls.remove(taken)
    return taken
