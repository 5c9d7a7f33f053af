"""created_at as text: ISO 8601 in its common spellings, to microseconds in UTC."""

import polars as pl

_ISO_8601 = (
    r"^(?<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?<minute>[0-9]{2}:[0-9]{2})(?::(?<second>[0-9]{2})(?:[.,](?<fraction>[0-9]+))?)?"
    r"\s?(?:[Zz]|(?<sign>[+-])(?<hours>[0-9]{2}):?(?<minutes>[0-9]{2})?)?)?$"
)


# As most archives write all of their times: these are read in a fraction of the time.
_USUAL = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{1,9})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$"
)
_USUAL_FORMAT = "%Y-%m-%dT%H:%M:%S%.f%#z"


def _moment() -> pl.Expr:
    """UTC timestamps from the groups of `_ISO_8601`, which are columns."""
    moment = pl.format(
        "{}T{}:{}",
        "date",
        pl.col("minute").fill_null("00:00"),
        pl.col("second").fill_null("00"),
    ).str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False)
    microseconds = (
        pl.col("fraction").fill_null("").str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64)
    )
    hours = pl.col("hours").cast(pl.Int64).fill_null(0)
    minutes = pl.col("minutes").cast(pl.Int64).fill_null(0)
    ahead = pl.when(pl.col("sign") == "-").then(-1).otherwise(1) * (hours * 60 + minutes)
    shift = pl.duration(microseconds=microseconds - ahead * 60_000_000)
    valid = (hours < 24) & (minutes < 60)
    return pl.when(valid).then(moment + shift).dt.replace_time_zone("UTC").alias("moment")


_MOMENT = _moment()


def from_text(text: pl.Series) -> pl.Series:
    """UTC timestamps from text such as 2026-01-05T08:00:00.123456789+02:00.

    A time without a zone is UTC, a date without a time its midnight. Digits finer than a
    microsecond are cut off. Any other text gives null.

    Args:
        text: strings.

    Returns:
        Datetime("us", "UTC").
    """
    if text.str.contains(_USUAL).all():
        return text.str.to_datetime(_USUAL_FORMAT, time_unit="us", strict=False)
    # Of a series, since an expression would look for the groups anew for each that it takes.
    groups = text.str.extract_groups(_ISO_8601).struct.unnest()
    return groups.select(_MOMENT).to_series().alias(text.name)
