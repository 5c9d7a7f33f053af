"""Why a row is rejected, in words: where its fault stands, and the value that stands there."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kp_batch.archive.formats.json_values import finite
from kp_batch.archive.validation import CHECKS, MALFORMED_JSON
from kp_batch.text import shortened

# Raised with every change of these words: the next run then tells the published rejects anew.
MESSAGES_VERSION = 4
# In place of the JSON that vacuum removed; not null, or the next run would read the row again.
REMOVED = '"removed by kp-batch vacuum"'
# Added where a line is not kept: it may be of any file that the user may read.
OUTSIDE = "; it is not kept, since a link leads to its file, which is outside the archive"
_SHOWN = 60  # characters of a value


def reject_message(codes: Sequence[str], row: int, raw: str | None) -> str:
    """The sentences for all faults of a row, joined by semicolons.

    Args:
        codes: of its faults, as `validation.reasons` gives them.
        row: its number in its file, from 0.
        raw: its JSON, as `reading.read_raw` gives it; None where it cannot be read again. Without
            it, or where it is `REMOVED`, the sentences name no value.
    """
    try:
        value = None if raw in (None, REMOVED) else json.loads(raw)
    except (ValueError, RecursionError):  # as deep, or as long a number, as was only just read
        value = None
    if list(codes) == [MALFORMED_JSON]:
        return _malformed(row + 1, value)
    return "; ".join(fault_sentence(code, value) for code in codes)


def fault_sentence(code: str, trace: Any) -> str:
    """The sentence for one fault of a trace, with the first value at fault.

    Args:
        code: of the fault.
        trace: a JSON value; where it has no such fault the sentence names no value.
    """
    if code == MALFORMED_JSON:
        return f"the trace is {_shown(trace)}, no JSON object"
    check = CHECKS[code]
    found = list(check.places(trace)) if isinstance(trace, Mapping) else []
    if not found:
        return check.message
    name, value, expected = found[0]
    first = f" (the first of {len(found):,} such steps)" if len(found) > 1 else ""
    if value is None:
        return f"{name} is null{first}"
    if isinstance(value, str | list) and not value:
        return f"{name} is empty{first}"
    return f"{name} is {_shown(value)}, {expected}{first}"


def _malformed(line: int, text: Any) -> str:
    """The sentence for a line, counted from 1 as editors do, that is no JSON object."""
    told = f"line {line} is no JSON object"
    if not isinstance(text, str):
        return told
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return f"{told}: {error.msg.removesuffix(' at')} at character {error.pos + 1}"
    except RecursionError:
        return f"{told} that can be read: it is nested too deep"
    except ValueError:
        return f"{told} that can be read: it holds a number of too many digits"
    if isinstance(value, dict):  # what is no UTF-8 was replaced before
        return f"{told} that can be read: it is not UTF-8"
    return f"line {line} is {_shown(value)}, no JSON object"


def _shown(value: Any) -> str:
    try:
        return shortened(json.dumps(finite(value), ensure_ascii=False, default=str), _SHOWN)
    except RecursionError:
        return "nested too deep to be shown"
