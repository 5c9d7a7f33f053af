"""Why a run has anything to do: settings and formulas, old and new, in words and as codes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kp_batch.text import number

_TO = "\N{RIGHTWARDS ARROW}"
_WEIGHTS = "profiles"  # the setting that is told by profile
OF_ENCODER = frozenset({"embedder", "precision"})  # settings that make another encoder
BEFORE: Mapping[str, Any] = {
    "precision": "float32",
    "text": True,
}  # settings of warehouses from before there were these
_FORMULAS = ("facts", "encoder", "replay", "scoring")

# What a run may have to publish anew.
Pending = Literal["settings", "files", "scores", "profiles", "rejects", "forgotten"]


@dataclass(frozen=True)
class Reason:
    """One thing that differs between two states of a warehouse.

    Attributes:
        code: the setting's name, `weights`, `formula`, or what else made it says.
        words: the same for people; names in it may come from outside.
        old: a JSON value; null where there was none.
        new: likewise.
        of: whose weights, or which formula.
    """

    code: str
    words: str
    old: Any = None
    new: Any = None
    of: str | None = None


def setting_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reason]:
    """Tell which settings of a warehouse differ, the weights by profile.

    Args:
        old: JSON values by the names of the settings; empty for a new warehouse: none differs.
        new: likewise.
    """
    for name in new if old else ():
        if name == _WEIGHTS:
            yield from _weight_changes(old[name], new[name])
        elif (was := old.get(name, BEFORE.get(name))) != new[name]:
            words = f"{name.replace('_', ' ')} {in_words(was)} {_TO} {in_words(new[name])}"
            yield Reason(name, words, was, new[name])


def in_words(value: Any) -> str:
    """The value of a setting as people read it."""
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def formula_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reason]:
    """Tell which formulas have another version, as another kp_batch brings them; see `runs`."""
    for name in _FORMULAS:
        if old[name] != new[name]:
            words = f"formula of {name} {old[name]} {_TO} {new[name]}"
            yield Reason("formula", words, old[name], new[name], of=name)


def file_changes(counts: Mapping[str, int]) -> Iterator[Reason]:
    """Tell what became of the archive's files.

    Args:
        counts: how many files are new, changed and so on: see `FileChanges`.
    """
    for what, count in counts.items():
        if count:
            yield Reason(f"files_{what}", f"{number(count, 'file')} {what}", new=count)


def listed(reasons: Iterable[Reason]) -> str:
    """The words of all reasons, on one line."""
    return "; ".join(each.words for each in reasons)


def _weight_changes(
    old: Mapping[str, Mapping[str, float]], new: Mapping[str, Mapping[str, float]]
) -> Iterator[Reason]:
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was != now:
            words = f"weights of {name}: {_weights(was, now)}"
            yield Reason("weights", words, was, now, of=name)


def _weights(old: Mapping[str, float] | None, new: Mapping[str, float] | None) -> str:
    if old is None or new is None:
        told = [f"{name} {value:g}" for name, value in (old or new or {}).items()]
        return f"{'new' if old is None else 'gone'} ({', '.join(told)})"
    changed = {name: value for name, value in new.items() if value != old[name]}
    return ", ".join(f"{name} {old[name]:g} {_TO} {value:g}" for name, value in changed.items())
