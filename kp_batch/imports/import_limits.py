"""How much an import may refuse."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kp_batch.errors import KpBatchError
from kp_batch.limits import Measure, exceeded

if TYPE_CHECKING:  # not for the command line, which has the options of all commands
    from kp_batch.imports.refusals import Refusals

MAX_REFUSED = "More refused traces than this, 5 or 5% of what is read, fail the import."
MAX_UNREADABLE = "More unreadable files than this, 5 or 5%, fail the import."


@dataclass(frozen=True)
class ImportLimits:
    """How much an import may refuse: a number such as 5, or a share such as 5%; None: any.

    Waiting traces count as neither.
    """

    max_refused: str | None = None  # of the traces, lines and rows that are read
    max_unreadable: str | None = None  # of the files of the sources


def check_limits(limits: ImportLimits, refusals: "Refusals", traces: int, files: int) -> None:
    """Refuse to import where more is refused than may be, of so many built traces and files.

    Raises:
        KpBatchError: names the limit, and how to allow it.
    """
    refused, unreadable = (refusals.counts[kind] for kind in ("refused", "unreadable"))
    examples = {kind: f"such as {example}" for kind, example in refusals.examples.items()}
    measures = (
        Measure(
            *("max_refused", refused, traces + refused, "trace", "refused"),
            example=examples.get("refused", ""),
        ),
        Measure(
            *("max_unreadable", unreadable, files, "file", "unreadable"),
            example=examples.get("unreadable", ""),
        ),
    )
    if over := exceeded(measures, limits):
        raise KpBatchError(
            f"{'; '.join(measure.message(limits) for measure in over)}; no trace is imported; "
            "_refused.jsonl in the archive tells all; to allow it this once: "
            f"{' '.join(measure.allowance for measure in over)}"
        )
