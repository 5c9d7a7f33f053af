"""How much of an archive repeats itself, as it is kept with the publication it was asked of."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from kp_batch.html import Displayed
from kp_batch.json_values import Number, are_all, is_text
from kp_batch.parts import Head, Part, Table, as_text
from kp_batch.text import count_of

_COUNT = Number(0, 2**63 - 1, is_whole=True)
_SHARE = Number(0, 1)


@dataclass(frozen=True)
class Redundancy(Displayed):
    """The traces that repeat an earlier one; its fields in the order of their JSON.

    `all_repeats = exact_repeats + near_repeats`, and `share = all_repeats / traces`. Where a sample
    was compared, `near_repeats` is an estimate, rounded to whole traces.
    """

    similarity: float  # the cosine from which on a trace nearly repeats another one
    encoder_id: str  # of the vectors
    traces: int  # that have vectors of this encoder
    other_encoders: int  # traces that count nowhere here, as they have vectors of another one
    exact_repeats: int  # traces whose text an earlier one has
    near_repeats: int  # of the others, those that an earlier one is similar to
    all_repeats: int  # both
    share: float  # of all repeats among the traces: 0..1
    low: float  # the 95% interval of the share, which is itself where all were compared
    high: float
    same_objective: int  # traces whose objective an earlier one has
    compared: int  # traces without an earlier text that were compared with all earlier ones

    @classmethod
    def read(cls, value: Any) -> Self:
        """Check the value of a file, which anybody may have written, and take it.

        Raises:
            ValueError: it is none that is written.
            TypeError: a field is missing.
        """
        if not are_all(value, lambda name, x: name in _ALLOWED and _ALLOWED[name](x)):
            raise ValueError(f"the redundancy {value!r}")
        return cls(**value)

    @property
    def is_exact(self) -> bool:
        """Whether all traces were compared, and not a sample of them."""
        return self.compared == self.traces - self.exact_repeats

    def as_dict(self) -> dict[str, Any]:
        """Its fields by name."""
        return asdict(self)

    def _parts(self) -> Iterator[Part]:
        return redundancy_parts(self)


def redundancy_text(result: Redundancy) -> str:
    """Format the redundancy of an archive for a terminal."""
    return as_text(redundancy_parts(result))


def redundancy_parts(result: Redundancy) -> Iterator[Part]:
    """The redundancy of an archive for people."""
    about = "" if result.is_exact else "about "
    near = f"near repeats: another text, a similarity from {result.similarity:g}"
    counts = {
        "exact repeats: the same text": (result.exact_repeats, ""),
        near: (result.near_repeats, about),
        "all repeats: these together": (result.all_repeats, about),
        "the same objective": (result.same_objective, ""),
    }
    yield Head(f"{count_of(result.traces, 'trace')}, by {result.encoder_id}")
    rows = [
        {
            "like an earlier one": name,
            "traces": f"{about}{count:,}",
            "share": f"{count / result.traces:.2%}",
        }
        for name, (count, about) in counts.items()
    ]
    yield Table(rows, bars=[(0.0, count / result.traces) for count, _ in counts.values()])
    if not result.is_exact:
        others = result.traces - result.exact_repeats
        yield (
            f"  all repeats: estimated, with a 95% interval from {result.low:.2%} to "
            f"{result.high:.2%}: of the {others:,} texts {result.compared:,} were compared with "
            "all earlier ones"
        )
    if result.other_encoders:
        yield f"  not counted: {result.other_encoders:,} with vectors of another encoder"


_ALLOWED = {
    each.name: {int: _COUNT.allows, float: _SHARE.allows, str: is_text}[each.type]  # type: ignore[index]
    for each in fields(Redundancy)
}
