from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.limits import is_beyond, parse_limit, parse_share


@pytest.mark.parametrize(
    ("share", "read"),
    [
        ("5%", "5%"),
        ("0.05", "5%"),
        (".05", "5%"),
        (0.05, "5%"),
        (0.07, "7%"),  # 0.07 * 100 is 7.000000000000001
        (1e-07, "0.00001%"),
        ("0.125", "12.5%"),
        ("33.3%", "33.3%"),
        (0, "0%"),
        (1, "100%"),  # all, as ever: not one row, nor one percent
        ("1", "100%"),
        (1.0, "100%"),
        (1 - 2**-53, "99.99999999999999%"),
    ],
)
def test_a_share_is_read_as_a_decimal_or_in_percent_and_written_in_percent(
    share: object, read: str
) -> None:
    assert parse_share(share) == read
    assert parse_share(read) == parse_limit(read) == read  # as it is told, it can be given again


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**20))
def test_a_share_is_compared_to_the_last_digit(part: int, total: int, share: int) -> None:
    percent = f"{share // 10**18}.{share % 10**18:018d}%"
    assert is_beyond(percent, part, total) == (part * 100 * 10**18 > share * total)


@given(st.integers(1, 10**9), st.integers(1, 10**6))
def test_a_share_that_is_reached_is_not_exceeded(total: int, thousandths: int) -> None:
    percent = f"{thousandths % 100_001 / 1000:.3f}%"
    most = Fraction(thousandths % 100_001, 100_000) * total
    whole = most.numerator // most.denominator
    assert not is_beyond(percent, whole, total)
    assert is_beyond(percent, whole + 1, total)


def test_a_number_does_not_depend_on_how_many_there_are() -> None:
    assert [is_beyond("5", part, total) for part in (5, 6) for total in (0, 6, 10**9)] == [
        *[False] * 3,
        *[True] * 3,
    ]
