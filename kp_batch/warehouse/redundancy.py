"""How much of an archive repeats itself, as it is kept with the publication it was asked of."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from kp_batch.settings import Number, are_all, is_text

_COUNT = Number(0, 2**63 - 1, is_whole=True)
_SHARE = Number(0, 1)


@dataclass(frozen=True)
class Redundancy:
    """The traces that nearly repeat an earlier one; its fields in the order of their JSON."""

    similarity: float  # the cosine from which on a trace nearly repeats another one
    encoder_id: str  # of the vectors
    traces: int  # that have vectors of this encoder
    other_encoders: int  # traces that count nowhere here, as they have vectors of another one
    same_text: int  # traces whose text an earlier one has
    same_objective: int  # traces whose objective an earlier one has
    compared: int  # of the traces without such a text, those that were compared with all earlier
    repeats: int  # of these, those that an earlier one is similar to
    share: float  # of all traces that nearly repeat an earlier one, by text or vector: 0..1
    low: float  # the 95% interval of the share, which is itself where all were compared
    high: float

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
        return self.compared == self.traces - self.same_text

    def as_dict(self) -> dict[str, Any]:
        """Its fields by name."""
        return asdict(self)


_ALLOWED = {
    each.name: {int: _COUNT.allows, float: _SHARE.allows, str: is_text}[each.type]  # type: ignore[index]
    for each in fields(Redundancy)
}
