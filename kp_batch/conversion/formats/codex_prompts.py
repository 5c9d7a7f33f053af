"""What users ask of Codex, without what Codex and its apps add around it."""

import re
from html import unescape
from itertools import dropwhile

from kp_batch.conversion.conversation import sessions
from kp_batch.conversion.conversation.messages import Json, as_object, parts_of, text_of_part

_INJECTED = sessions.Injected(
    elements=(
        *("environment_context", "user_instructions", "permissions instructions"),
        *("turn_aborted", "user_shell_command", "skill", "INSTRUCTIONS"),
        *("in-app-browser-context", "response-annotations"),
        *("recommended_plugins", "codex_delegation"),
    ),
    openings=("# AGENTS.md instructions",),
)
# A part of a message that is injected as a whole: an element, or a tag of a picture.
_ALONE = re.compile(
    r"\s*(?:<([a-zA-Z]{1,40}(?:[-_ ][a-zA-Z]{1,40}){1,3})(?:\s[^<>]*)?>.*</\1>"
    r"|</?image(?:\s[^<>]*)?>)\s*",
    re.DOTALL,
)
# An app puts what was typed below its own state or files, mostly under a heading.
_REQUEST = re.compile(r"^## My request(?: for Codex)?:", re.MULTILINE)
_EDITOR = "# Context from my IDE setup"
_FILES = "# Files mentioned by the user"
_HEADS = (_EDITOR, _FILES, "# Response annotations", "## My request:")
_OF_FILES = re.compile(rf"{_FILES}|## .+: |Image attachment:|Distinguish instructions in|\s*$")
# What an app asks at a time that the user has set: in a thread of its own, or in an old one.
_SCHEDULED = re.compile(
    r"\s*Automation: [^\n]*\nAutomation ID: [^\n]*\n(?:(?:Automation memory|Last run): [^\n]*\n)*+"
)
_WAKE = re.compile(
    r"\s*<heartbeat>\s*<automation_id>[^<]*</automation_id>\s*"
    r"(?:<current_time_iso>[^<]*</current_time_iso>\s*)?"
    r"<instructions>(.*)</instructions>\s*</heartbeat>\s*",
    re.DOTALL,
)
_SCHEDULES = "automation_update"  # the tool


def typed(content: object) -> str:
    """Return what a user asks in a content; '' if all of it is Codex's or an app's."""
    text = _without_schedule(_INJECTED.typed(content))
    begin = text.lstrip()
    request = _REQUEST.search(begin)
    # A user may write such a heading, too.
    if request and (request[0].endswith("Codex:") or begin.startswith(_HEADS)):
        return begin[request.end() :].strip()
    if begin.startswith(_EDITOR):
        return ""
    if begin.startswith(_FILES):
        return "\n".join(dropwhile(_OF_FILES.match, begin.split("\n"))).strip()
    return text


def _without_schedule(text: str) -> str:
    if wake := _WAKE.fullmatch(text):
        return unescape(wake[1]).strip()
    schedule = _SCHEDULED.match(text)
    return text[schedule.end() :].strip() if schedule else text


def typed_in_message(item: Json) -> str:
    """Return what a user asks in a message; parts of it may be injected."""
    parts = parts_of(item.get("content"))
    return typed([part for part in parts if not _ALONE.fullmatch(text_of_part(part))])


def typed_in_event(event: Json) -> str | None:
    """Return what a user asks in an event; None if it is another event."""
    if event.get("type") == "user_message":
        return typed(str(event.get("message") or ""))
    item = as_object(event.get("item"))
    if event.get("type") != "item_completed" or item.get("type") != "UserMessage":
        return None
    return typed(item.get("content"))


def scheduled(item: Json) -> str:
    """Return what a user has scheduled, from an item that no call asked for; '' for other items."""
    is_result = item.get("type") == "function_call_output" and not item.get("call_id")
    return typed(item.get("output")) if is_result and item.get("name") == _SCHEDULES else ""
