"""Whether means compare: all scores bear the same settings, and so did the previous run's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from kp_batch import run_record
from kp_batch.reasons import Reason, setting_changes
from kp_batch.report.report_data import LABEL, ReportData
from kp_batch.report.sentences import Finding, Untrusted, tell
from kp_batch.run_record import RunRecord, profile_name
from kp_batch.text import number, printable, shortened

_NAMED = 5  # at most, of what is mixed


@dataclass(frozen=True)
class Mixed:
    """One setting of which the scores bear several values."""

    name: str  # encoders, caches or weights
    profile: str | None  # whose weights they are
    traces: Mapping[str, int]  # how many scores bear each id

    @property
    def parts(self) -> Iterator[str]:
        """The words that tell of it, as parts of a sentence."""
        most = sorted(self.traces.items(), key=lambda each: (-each[1], each[0]))
        if self.profile is None:
            for place, (value, traces) in enumerate(most):
                yield ", " if place else f"{self.name} "
                yield Untrusted(printable(value))
                yield f" ({number(traces, 'trace')})"
        else:
            yield f"{self.name} of "
            yield Untrusted(shortened(self.profile, LABEL))
            yield f" ({' and '.join(f'{traces:,}' for _, traces in most)} traces)"


def mixed_settings(data: ReportData, run: RunRecord | None) -> list[Mixed]:
    """The settings that are mixed in the scores that a run left, as --since may leave them.

    Args:
        data: what the report shows.
        run: its last run, or the one before.
    """
    if not run:
        return []
    found = [
        Mixed("encoders", None, run.fingerprints["encoder_id"]),
        Mixed("caches", None, run.fingerprints["cache_id"]),
        *(Mixed("weights", name, ids) for name, ids in sorted(_weights(data, run).items())),
    ]
    return [each for each in found if len(each.traces) > 1]


def _weights(data: ReportData, run: RunRecord) -> dict[str, dict[str, int]]:
    """How many scores bear each id of a profile, by its name.

    Only traces of the domain of that name bear it. Those of them that do not bear the default one.
    """
    found: dict[str, dict[str, int]] = {}
    for profile_id, traces in run.fingerprints["profile_id"].items():
        found.setdefault(profile_name(profile_id), {})[profile_id] = traces
    for _, domain, traces in data.profiled.filter(run_id=run.run_id).iter_rows():
        bearing = sum(found.get(domain, {}).values())
        if 0 < bearing < traces:
            found[domain]["default"] = traces - bearing
    return found


def is_novelty_mixed(data: ReportData) -> bool:
    """Whether novelty does not compare either: it depends on encoder and cache alone."""
    return any(each.profile is None for each in mixed_settings(data, data.run))


def of_mixture(data: ReportData) -> Iterator[Finding]:
    """What is mixed, and how many traces bear which."""
    mixed = mixed_settings(data, data.run)
    if mixed:
        listed = [*chain(*(("; ", *each.parts) for each in mixed[:_NAMED]))][1:]
        more = f"; and {len(mixed) - _NAMED:,} more" if len(mixed) > _NAMED else ""
        yield tell(
            "The scores bear mixed settings, and means over them do not compare: ",
            *listed,
            f"{more}. A run with --since none --until none makes them one again.",
            is_warning=True,
        )


def incomparable(data: ReportData) -> list[Reason]:
    """What makes the last two runs' scores incomparable: other formulas, or another encoder."""
    return run_record.incomparable(data.before, data.run) if data.before and data.run else []


def settings_changed(data: ReportData) -> list[Reason]:
    """The settings that differ between the last two runs."""
    if not (data.before and data.run):
        return []
    return [*setting_changes(data.before.settings, data.run.settings)]


def no_trend(data: ReportData) -> str | None:
    """Why the scores moved since the previous run other than by their traces; None if they did not.

    The threshold moves no score, and neither do texts in the report, weights that no score bears,
    nor the cache where there is no encoder, nor the precision where there is no model. Limits may,
    since what they held back is restated once they are ended.
    """
    borne = {name for run in (data.before, data.run) if run for name in _weights(data, run)}
    embedders = {run.settings["embedder"] for run in (data.before, data.run) if run}
    idle = {"threshold", "text"}
    idle |= {"precision"} if embedders <= {"hashing", "none"} else set()
    idle |= {"cache_size", "ttl"} if embedders == {"none"} else set()
    moving = (
        each.of in borne if each.code == "weights" else each.code not in idle
        for each in settings_changed(data)
    )
    if incomparable(data) or any(moving):
        return "settings or formulas changed"
    if mixed_settings(data, data.run) or mixed_settings(data, data.before):
        return "settings are mixed"
    return None
