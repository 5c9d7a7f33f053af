"""Limits of what an import may refuse."""

from pydantic import Field

from kp_batch.errors import KpBatchError
from kp_batch.imports.refusals import RefusalCounts
from kp_batch.limits import Measure, exceeded
from kp_batch.settings import Limit, SettingsModel


class ImportLimits(SettingsModel):
    """How much an import may refuse; None for no limit. Waiting traces do not count."""

    max_refused: Limit = Field(
        None,
        description="Fail if more traces than this are refused: a number, or a share such as 5%.",
    )
    max_unreadable: Limit = Field(
        None, description="Fail if more files than this are unreadable: a number, or a share."
    )


def check_limits(limits: ImportLimits, refusals: RefusalCounts, traces: int, files: int) -> None:
    """Refuse an import that exceeds a limit, given its refusals, built traces and files.

    Raises:
        KpBatchError: a limit is exceeded; the message names it, and how to raise it.
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
            "_refused.jsonl in the archive lists all of them; to allow it this once: "
            f"{' '.join(measure.allowance for measure in over)}"
        )
