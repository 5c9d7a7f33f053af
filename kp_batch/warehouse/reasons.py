"""Why a run has work to do: what differs in settings and formulas, in words and as codes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from kp_batch.text import count_of

_TO = "\N{RIGHTWARDS ARROW}"
_WEIGHTS = "profiles"  # the setting whose changes are listed by profile
_AUDITS = "audits"  # the one whose changes are listed by audit
_FROM = "from"  # the key of a date among the weights of a profile
OF_ENCODER = frozenset({"embedder", "precision"})  # settings that make another encoder
_FORMULAS = ("facts", "encoder", "replay", "scoring")
# What a warehouse means that lacks a setting, because it is older than the setting.
_ADDED: Mapping[str, Any] = {"reject_text": True}
Weights = Mapping[str, float]  # by dimension

# What a run may have to publish again.
Pending = Literal["settings", "files", "scores", "profiles", "rejects", "forgotten", "vectors"]


@dataclass(frozen=True)
class Reason:
    """One difference between two states of a warehouse.

    Attributes:
        code: a setting's name, `weights`, `audit`, `formula` and so on, for programs.
        words: the same for people; names in it may come from outside.
        old: a JSON value; null if there was none.
        new: a JSON value; null if there is none.
        of: whose weights, or which audit or formula.
    """

    code: str
    words: str
    old: Any = None
    new: Any = None
    of: str | None = None


@dataclass(frozen=True)
class RolledBack:
    """What a rollback undid, by its row in `runs`."""

    from_run: str
    to_run: str  # the run that is published again
    undone: tuple[Reason, ...]  # settings that change back; `old` is what it undid

    @classmethod
    def of(cls, changes: Iterable[Mapping[str, Any]]) -> "RolledBack | None":
        """Find it in the changes of a run; None if the run is not a rollback."""
        reasons = [Reason(**change) for change in changes]
        for reason in reasons:
            if reason.code == "rollback":
                undone = tuple(other for other in reasons if other is not reason)
                return cls(reason.old, reason.new, undone)
        return None


def complete(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a warehouse, with those that it is too old to have.

    Before the first run there are none.
    """
    return {**settings, **_ADDED, **settings} if settings else settings  # in their order


def setting_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reason]:
    """Yield the settings of a warehouse that differ, the weights by profile.

    Both arguments have JSON values by the names of the settings. A new warehouse has no settings,
    and so no differences.
    """
    old, new = complete(old), complete(new)
    for name in new if old else ():
        if name == _WEIGHTS:
            yield from _weight_changes(old[name], new[name])
        elif name == _AUDITS:
            yield from _audit_changes(old[name], new[name])
        elif (was := old.get(name)) != new[name]:
            words = f"{name.replace('_', ' ')} {in_words(was)} {_TO} {in_words(new[name])}"
            yield Reason(name, words, was, new[name])


def in_words(value: Any) -> str:
    """Return the value of a setting for people."""
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def formula_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reason]:
    """Yield the formulas with another version, such as those of another kp_batch; see `runs`."""
    for name in _FORMULAS:
        if old[name] != new[name]:
            words = f"formula of {name} {old[name]} {_TO} {new[name]}"
            yield Reason("formula", words, old[name], new[name], of=name)


def file_changes(counts: Mapping[str, int]) -> Iterator[Reason]:
    """Yield the changes of the archive's files: how many are new and so on, see `FileChanges`."""
    for change, count in counts.items():
        if count:
            yield Reason(f"files_{change}", f"{count_of(count, 'file')} {change}", new=count)


def join_reasons(reasons: Iterable[Reason]) -> str:
    """Join the words of all reasons, on one line."""
    return "; ".join(reason.words for reason in reasons)


def for_mail(words: str) -> str:
    """Return words of reasons without arrows, because cron's mails are ASCII."""
    return words.replace(_TO, "to")


def weights_by_date(profile: Any) -> dict[str, Weights]:
    """Return the weights of a profile by the date from which they apply, ascending; "" is no date.

    The profile is as in the settings; the dates sort as texts.
    """
    tables: list[dict[str, Any]] = profile if isinstance(profile, list) else [profile or {}]
    return {
        table.get(_FROM, ""): {name: value for name, value in table.items() if name != _FROM}
        for table in tables
        if table
    }


def dated(name: str, begin: str, end: str = "") -> str:
    """Return whose weights, from when on and before when they apply; "" is no date."""
    dates = [f"from {begin}"] if begin else []
    dates += [f"before {end}"] if end else []
    return " ".join([f"weights of {name}", ", ".join(dates)]).strip()


def _weight_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reason]:
    """Yield the weights that differ, by profile, with the times at which they do."""
    for name in sorted(old.keys() | new.keys()):
        pair = (weights_by_date(old.get(name)), weights_by_date(new.get(name)))
        for begin, end, was, now in _spans(*pair):
            if was != now:
                words = f"{dated(name, begin, end)}: {_weights(was, now)}"
                yield Reason("weights", words, was, now, of=name)


def _audit_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reason]:
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was != now:
            how = "new" if was is None else "gone" if now is None else "changed"
            yield Reason("audit", f"audit {name} {how}", was, now, of=name)


def _spans(
    old: Mapping[str, Weights], new: Mapping[str, Weights]
) -> Iterator[tuple[str, str, Weights | None, Weights | None]]:
    """Yield the longest spans of time without a change: begin, end, and both sides' weights."""
    changes = sorted({"", *old, *new})
    both = [(at, _weights_at(old, at), _weights_at(new, at)) for at in changes]
    for (was, now), group in groupby(both, lambda row: row[1:]):
        begins = [begin for begin, *_ in group]
        later = [at for at in changes if at > begins[-1]]
        yield begins[0], later[0] if later else "", was, now


def _weights_at(by_date: Mapping[str, Weights], at: str) -> Weights | None:
    begun = [weights for begin, weights in by_date.items() if begin <= at]
    return begun[-1] if begun else None


def _weights(old: Weights | None, new: Weights | None) -> str:
    if old is None or new is None:
        weights = [f"{name} {value:g}" for name, value in (old or new or {}).items()]
        return f"{'new' if old is None else 'gone'} ({', '.join(weights)})"
    changed = {name: value for name, value in new.items() if value != old[name]}
    return ", ".join(f"{name} {old[name]:g} {_TO} {value:g}" for name, value in changed.items())
