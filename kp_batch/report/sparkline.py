"""A number over time as a line of a few pixels, with the band of its interval."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kp_batch.report.numbers import Number, Point
from kp_batch.report.tables import written

_WIDTH, _HEIGHT = 160, 36  # pixels
_MARGIN = 3  # for half of the line and of its last dot
_COUNTS = ","  # the form of numbers that are read from zero, and are known to be none


@dataclass(frozen=True)
class Sparkline:
    """The paths of a drawing, and what it shows in words."""

    width: ClassVar[int] = _WIDTH
    height: ClassVar[int] = _HEIGHT
    band: str
    line: str
    last: tuple[float, float]  # where the last value is
    words: str

    @classmethod
    def of(cls, number: Number) -> "Sparkline | None":
        """The values of a number; None where fewer than two steps have traces."""
        known = [(point, value) for point in number.series if (value := point.value) is not None]
        if len([value for _, value in known if value or number.form != _COUNTS]) < 2:
            return None
        places = _Places.of(number)
        words = (f"{written(point.start)}: {written(value, number.form)}" for point, value in known)
        first, *_, last = words
        return cls(
            band="".join(places.band()),
            line="".join(places.line()),
            last=places.at(number.series.index(known[-1][0]), known[-1][1]),
            words=f"{first}; {last}",
        )


@dataclass(frozen=True)
class _Places:
    """Where the values of steps are drawn, whose least and greatest these are."""

    series: Sequence[Point]
    least: float
    greatest: float

    @classmethod
    def of(cls, number: Number) -> "_Places":
        ends = [end for point in number.series for end in (point.value, point.low, point.high)]
        drawn = [end for end in ends if end is not None]
        if number.form == _COUNTS:
            drawn.append(0)
        return cls(number.series, min(drawn), max(drawn))

    def at(self, step: float, value: float) -> tuple[float, float]:
        """The place of a value; half-way up where all are the same."""
        extent = self.greatest - self.least
        up = (value - self.least) / extent if extent else 0.5
        along = (step + 0.5) / len(self.series)
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * along
        y = _MARGIN + (_HEIGHT - 2 * _MARGIN) * (1 - up)
        return round(x, 1), round(y, 1)

    def band(self) -> Iterator[str]:
        """The path of fields as wide as a step."""
        for step, point in enumerate(self.series):
            if point.low is not None and point.high is not None:
                left, bottom = self.at(step - 0.5, point.low)
                right, top = self.at(step + 0.5, point.high)
                yield f"M{left} {bottom}V{top}H{right}V{bottom}Z"

    def line(self) -> Iterator[str]:
        """The path through the values, broken where there is none."""
        is_begun = False
        for step, point in enumerate(self.series):
            if point.value is not None:
                x, y = self.at(step, point.value)
                yield f"L{x} {y}" if is_begun else f"M{x} {y}L{x} {y}"
            is_begun = point.value is not None
