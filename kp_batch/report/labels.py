"""Labels of domains: short, distinct, and without another meaning."""

from collections.abc import Iterable

from kp_batch.text import shortened

ALL = "all domains"  # the label of the scope with all traces
LABEL = 40  # the most characters of a label
# Labels that no domain gets: those with another meaning, and the properties of every JavaScript
# object, because Vega looks domains up in one.
_RESERVED = (
    ALL,
    *("__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
    *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable"),
    *("toLocaleString", "toString", "valueOf"),
)


def distinct_labels(names: Iterable[str]) -> list[str]:
    """Return a distinct label for each name: the shortened name."""
    labels: list[str] = []
    for name in names:
        labels.append(distinct(labels, shortened(name, LABEL)))
    return labels


def distinct(labels: list[str], label: str) -> str:
    """Add stars to the label until no other label is the same."""
    while label in labels or label in _RESERVED:
        label += "*"
    return label
