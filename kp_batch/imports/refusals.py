"""The refusals of imports: `_refused.jsonl` in the archive, one per line.

What only waits is in `_waiting.jsonl` instead: a trace without its root, or an unfinished line.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kp_batch.conversion.model import Refused
from kp_batch.imports.destination import Archive
from kp_batch.text import encodable, shortened

# Reasons that a later import may remove.
_WAITING = ("incomplete", "unfinished_run", "unfinished_line")
NAMES = {"refused": "_refused.jsonl", "waiting": "_waiting.jsonl"}
_EXAMPLE = 300  # characters of a refusal in a message


def waits(refused: Refused) -> bool:
    """Whether something is only refused until a later import."""
    return not set(_WAITING).isdisjoint(refused.reasons)


@dataclass
class RefusalCounts:
    """Counts what an import refuses.

    Attributes:
        refused: refusals by reason.
        waiting: waiting items by reason.
        counts: number of `unreadable` files, and of other `refused` items.
        examples: an example of each of these.
    """

    refused: Counter[str] = field(default_factory=Counter[str])
    waiting: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    examples: dict[str, str] = field(default_factory=dict[str, str])

    def count(self, refused: Refused, file: str, *, is_file: bool) -> None:
        """Count a refusal: of a file that cannot be read, or of a part of a file."""
        if waits(refused):
            self.waiting.update(refused.reasons)
            return
        self.refused.update(refused.reasons)
        kind = "unreadable" if is_file else "refused"
        self.counts[kind] += 1
        message = refused.message or ", ".join(refused.reasons)
        example = shortened(f"{refused.id or file}: {message}", _EXAMPLE)
        self.examples.setdefault(kind, example)


def row_of(refused: Refused, file: str, owner: str | None) -> tuple[str | None, str, bool, str]:
    """Return the store's row for a refusal."""
    line = {
        "id": refused.id,
        "file": file,
        "line": refused.line,
        "reasons": list(refused.reasons),
        "message": refused.message,
    }
    text = encodable(json.dumps(line, ensure_ascii=False))
    owner = owner or refused.id
    return owner and encodable(owner), encodable(file), waits(refused), text


def write_list(archive: Archive, kind: str, texts: Iterable[str]) -> None:
    """Write the list of one kind; see `NAMES`."""
    with (
        archive.writing(NAMES[kind]) as path,
        path.open("w", encoding="utf-8", newline="") as file,
    ):
        file.writelines(f"{text}\n" for text in texts)
