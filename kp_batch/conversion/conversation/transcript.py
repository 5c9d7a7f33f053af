"""A trace's objective and steps, from messages and tools in the order of time, each counted once.

Systems record the same content several times: the input of each call of a model has all earlier
messages. A tool call is in a message, in a span of its own, and in later messages.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kp_batch.conversion.conversation.messages import (
    ALIKE,
    Message,
    Role,
    ToolCall,
    ToolResult,
    as_text,
    compact,
    joined,
    parse_json_deep,
)
from kp_batch.conversion.conversation.waiting_calls import WaitingCalls

Step = dict[str, object]  # as `schemas.TRACE` has it
_FIELDS = dict.fromkeys(
    (
        *("content", "tool", "input", "output_summary", "latency_ms", "role", "call_id"),
        "reasoning_chars",
    )
)


@dataclass
class Transcript:
    """Collects messages and tools in their order."""

    recovery: bool = False  # whether the first thought after a failed tool is an error recovery
    objective: str = ""  # the first user message
    system: str = ""  # the first system message, which is not a step
    steps: list[Step] = field(default_factory=list[Step])
    _users: Counter[str] = field(default_factory=Counter)
    _results: Counter[str] = field(default_factory=Counter)
    _open: WaitingCalls = field(default_factory=WaitingCalls)  # in a message, and not run yet
    _ahead: WaitingCalls = field(default_factory=WaitingCalls)  # run, and in no message yet
    _silent: list[ToolCall] = field(default_factory=list[ToolCall])  # among these, without a result
    _called: Counter[str] = field(default_factory=Counter)  # calls by id
    _answered: Counter[str] = field(default_factory=Counter)  # calls with a result, by id
    _contents: dict[str, set[str]] = field(default_factory=dict[str, set[str]])  # of these results
    # A waiting call and its steps, by the call's identity: its id may come later.
    _steps_of: dict[int, tuple[ToolCall, list[Step]]] = field(default_factory=dict)
    _nameless: Counter[str] = field(default_factory=Counter)  # results without an id
    _failed: bool = False
    _has_question: bool = False  # whether the objective was asked at the root
    _asked: int = 0  # how often the first messages that have the question have it
    _is_first: bool = False  # whether no user input has come yet

    def ask(self, question: str, messages: Iterable[Message]) -> None:
        """Add what the root was given, before all else: its own question, if it has one."""
        self.objective = question
        self._has_question = self._is_first = bool(question)
        self.add_prompt(messages)
        self._has_question = self._is_first = bool(self.objective)

    def add_conversation(self, messages: Iterable[Message]) -> None:
        """Add a conversation in which nothing is repeated."""
        messages = [*messages]
        self._add_system(messages)
        for message in messages:
            if message.role == "assistant":
                self.add_answer(message)
                continue
            for result in message.results:
                self._observe(result)
            if message.role == "user" and (message.text or not message.results):
                self._add_user(message.text)

    def add_answer(self, message: Message) -> None:
        """Add an assistant's message: a thought, and tool calls."""
        if message.thought:
            kind = "error_recovery" if self._failed else "thought"
            reasoning = len(message.reasoning) or None
            self._add(kind, "assistant", content=message.thought, reasoning_chars=reasoning)
            self._failed = False
        for call in message.calls:
            if ran := self._ahead.take(call, ALIKE):
                self._identify(ran, call.id)
                is_recorded = not any(ran is silent for silent in self._silent)
                if not ran.id:
                    self._called[call.id] += 1
                    self._answered[call.id] += is_recorded
                    self._results[f"id {call.id}"] += is_recorded
            else:
                self._call(call)
                self._open.add(call)
        for result in message.results:  # of tools that the model's provider runs
            self._observe(result)

    def add_prompt(self, messages: Iterable[Message]) -> None:
        """Add the new user messages and tool results in the input of a model's call."""
        messages = [*messages]
        self._add_system(messages)
        if self._has_question and (before := self._said_before(messages)):
            self._remember(before)
        users: dict[str, int] = defaultdict(int)
        results: dict[str, int] = defaultdict(int)
        for message in messages:
            for result in message.results:
                self._recognise(result)
                results[_key(result)] += 1
                is_more = results[_key(result)] > self._results[_key(result)]
                if is_more or self._is_of_another_call(result):
                    self._observe(result)
            if message.role == "user" and message.text:
                users[message.text] += 1
                if users[message.text] > self._users[message.text]:
                    self._add_user(message.text)

    def add_tool_run(self, call: ToolCall, result: ToolResult) -> None:
        """Add the run of a tool: its call, unless a message had it, and its result.

        Spans record arguments as a function takes them, and often no id. If a call waits for its
        result, its name must be enough then.
        """
        asked = self._open.take(call, 1, self._is_answered)
        if not asked:
            self._call(call)
            self._ahead.add(call)
            if result.content is None:
                self._silent.append(call)
        call_id = result.id or call.id or (asked.id if asked else "")
        if self._waits(call_id) or not (call_id and self._results[f"id {call_id}"]):
            number = len(self.steps)
            self._observe(ToolResult(result.content, call_id, result.failed))
            self._steps_of[id(asked or call)][1].extend(self.steps[number:])
        self._identify(asked or call, call_id)

    def _identify(self, call: ToolCall, call_id: str) -> None:
        """Set the id of a call on its steps, if it had none before."""
        _, steps = self._steps_of[id(call)]
        for step in steps:
            step["call_id"] = step["call_id"] or call_id or None

    def _add_system(self, messages: Iterable[Message]) -> None:
        """Add the system message, unless there was one before."""
        if not self.system:
            self.system = joined([each.text for each in messages if each.role == "system"])

    def _recognise(self, result: ToolResult) -> None:
        """Assign a result's id to a call without one, if no call has this id."""
        if not result.id or self._called[result.id] or self._results[f"id {result.id}"]:
            return  # the usual case: results are given to a model again and again
        content = _content(result)
        if self._nameless[content]:
            self._nameless[content] -= 1
            self._results[f"id {result.id}"] = 1

    def _waits(self, call_id: str) -> bool:
        """Whether a call of this id has no result yet: several agents may have calls of one id."""
        return bool(call_id) and self._answered[call_id] < self._called[call_id]

    def _is_of_another_call(self, result: ToolResult) -> bool:
        """Whether a result is new for the calls of its id, and one of these waits."""
        known = self._contents.get(result.id)
        return bool(known) and self._waits(result.id) and _content(result) not in known

    def _said_before(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages up to the question: they belong to earlier turns, in other traces.

        If no message equals the question, the last message that contains it counts, or else the
        last message. An earlier turn may have asked it too, and a user may repeat it.
        """
        question = self.objective.strip()
        texts = [message.text.strip() if message.role == "user" else "" for message in messages]
        places = [place for place, text in enumerate(texts) if text]
        same = [place for place in places if texts[place] == question]
        self._asked = self._asked or len(same)
        same = same[: self._asked]
        if not same and self._is_first:
            same = [place for place in places if question in texts[place]] or places[-1:]
        self._is_first = self._is_first and not places
        return messages[: same[-1] + 1] if same else ()

    def _remember(self, messages: Iterable[Message]) -> None:
        """Count messages as seen; results too, unless they may belong to this trace's calls."""
        users: dict[str, int] = defaultdict(int)
        results: dict[str, int] = defaultdict(int)
        for message in messages:
            if message.role == "user" and message.text:
                users[message.text] += 1
            for result in message.results:
                if not self._called or (result.id and not self._called[result.id]):
                    key = _key(result)
                    results[key] += 1
                    if results[key] > self._results[key]:  # otherwise it is known
                        self._contents.setdefault(result.id, set()).add(_content(result))
        for known, seen in ((self._users, users), (self._results, results)):
            for key, times in seen.items():
                known[key] = max(known[key], times)

    def _is_answered(self, call: ToolCall) -> bool:
        has_result = bool(call.id and self._results[f"id {call.id}"])
        return has_result and not self._waits(call.id)

    def _add_user(self, text: str) -> None:
        self._users[text] += 1
        if not self.objective:
            self.objective = text
        else:
            self._add("observation", "user", content=text)

    def _observe(self, result: ToolResult) -> None:
        self._failed = self._failed or (self.recovery and result.failed)
        if result.content is None:
            return
        # A repeated one may have lost or gained its id: see `add_answer`.
        content = _content(result)
        for key in {f"id {result.id}" if result.id else content, content}:
            self._results[key] += 1
        self._nameless[content] += not result.id
        self._answered[result.id] += 1
        self._contents.setdefault(result.id, set()).add(content)
        fields = {"content": as_text(result.content), "call_id": result.id or None}
        self._add("observation", "tool", **fields)

    def _call(self, call: ToolCall) -> None:
        arguments = None if call.arguments is None else as_text(call.arguments)
        self._called[call.id] += 1
        tool = {"name": call.name, "mcp_server": call.server}
        self._add("tool_call", "assistant", tool=tool, input=arguments, call_id=call.id or None)
        self._steps_of[id(call)] = call, [self.steps[-1]]

    def _add(self, kind: str, role: Role, **fields: object) -> None:
        step = {"step_id": len(self.steps), "type": kind, **_FIELDS, "role": role, **fields}
        self.steps.append(step)


def _key(result: ToolResult) -> str:
    """Return a key that repeated results share."""
    return f"id {result.id}" if result.id else _content(result)


def _content(result: ToolResult) -> str:
    return f"content {compact(parse_json_deep(result.content))}"
