"""created_at as text: to microseconds in UTC."""

import polars as pl

from kp_batch.contracts import TIMESTAMP
from kp_batch.times import time_of, us_of

# As most archives write all of their times: these are read in a fraction of the time.
_USUAL = (
    r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{1,9})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$"
)
_USUAL_FORMAT = "%Y-%m-%dT%H:%M:%S%.f%#z"


def from_text(text: pl.Series) -> pl.Series:
    """UTC timestamps from text, null where `time_of` knows none.

    Args:
        text: strings.

    Returns:
        Datetime("us", "UTC").
    """
    if text.str.contains(_USUAL).all():
        return text.str.to_datetime(_USUAL_FORMAT, time_unit="us", strict=False)
    times = (time_of(each) for each in text)
    counts = [None if each is None else us_of(each) for each in times]
    return pl.Series(text.name, counts, pl.Int64).cast(TIMESTAMP)
