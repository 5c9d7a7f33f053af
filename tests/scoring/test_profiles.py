from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import KpBatchError, ProfileError
from kp_batch.scoring.profiles import (
    ProfileVersions,
    WeightProfile,
    load_profiles,
    parse_profiles,
)
from tests.support.make.profiles import undated

BUILT_IN = {
    "default": (0.25, 0.35, 0.15, 0.25),
    "finance": (0.20, 0.25, 0.10, 0.45),
    "code": (0.20, 0.30, 0.30, 0.20),
    "medical": (0.15, 0.20, 0.10, 0.55),
    "customer_service": (0.20, 0.30, 0.20, 0.30),
}


def weights(profile: WeightProfile) -> tuple[float, ...]:
    return (
        profile.complexity,
        profile.novelty,
        profile.tool_diversity,
        profile.outcome_confidence,
    )


def table(name: str, *values: object) -> str:
    lines = [f"{dimension} = {value}" for dimension, value in zip(DIMENSIONS, values, strict=False)]
    return "\n".join([f"[profiles.{name}]", *lines, ""])


def refusal(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    with pytest.raises(ProfileError) as caught:
        load_profiles(path)
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "weights.toml"


def test_the_built_in_profiles_are_the_live_engines() -> None:
    assert {name: weights(profile) for name, profile in undated().items()} == BUILT_IN
    assert all(profile.name == name for name, profile in undated().items())


def test_a_file_is_merged_over_the_built_in_profiles(file: Path) -> None:
    file.write_text(
        table("code", 0.1, 0.2, 0.3, 0.4) + table('"Legal advice"', 1, 0, 0, 0), "utf-8"
    )
    profiles = undated(str(file))
    assert {name: weights(profile) for name, profile in profiles.items()} == BUILT_IN | {
        "code": (0.1, 0.2, 0.3, 0.4),
        "Legal advice": (1.0, 0.0, 0.0, 0.0),
    }
    assert profiles["Legal advice"].name == "Legal advice"


def test_weights_may_miss_a_sum_of_1_by_rounding(file: Path) -> None:
    file.write_text(table("legal", 0.25, 0.25, 0.25, 0.2500000009), "utf-8")
    assert "legal" in undated(file)
    assert refusal(file, table("legal", 0.25, 0.25, 0.25, 0.2500000011)).endswith(
        "1 fault: legal: the weights sum to 1.0000000011, not 1"
    )


def test_every_fault_of_a_file_is_reported_at_once(file: Path) -> None:
    text = "\n".join(
        [
            'author = "me"',
            table("negative", -0.5, 0.5, 0.5, 0.5),
            table("boolean", "true", 0, 0, 0),
            table("nan", "nan", 0.5, 0.5, 0),
            table("infinite", 1, 0, "inf", 0),
            table("text", '"1"', 0, 0, 0),
            table("sum", 0.5, 0.5, 0.5, 0.5),
            table("missing", 0.5, 0.5),
            table("more", 0.25, 0.25, 0.25, 0.25) + "speed = 0.1",
            table('""', 0.25, 0.25, 0.25, 0.25),
            "[profiles]",
            "flat = 3",
        ]
    )
    message = refusal(file, text)
    assert message.startswith(f"the profiles file {file} has 12 faults: ")
    for fault in (
        "unknown key 'author' (write profiles as [profiles.NAME])",
        "negative: complexity must be a number from 0 to 1, got -0.5",
        "boolean: complexity must be a number from 0 to 1, got True",
        "nan: complexity must be a number from 0 to 1, got nan",
        "infinite: tool_diversity must be a number from 0 to 1, got inf",
        "text: complexity must be a number from 0 to 1, got '1'",
        "sum: the weights sum to 2, not 1",
        "missing: tool_diversity is missing",
        "missing: outcome_confidence is missing",
        "more has no key 'speed'; keys: complexity, ",
        "a profile without a name",
        "flat: expected a table of four weights, got 3",
    ):
        assert fault in message


@pytest.mark.parametrize("text", ["", "[profiles]", "profiles = 1", "[profile.code]\nnovelty = 1"])
def test_a_file_without_a_profile_is_refused(file: Path, text: str) -> None:
    assert "no [profiles.NAME] table" in refusal(file, text)


def test_a_file_that_is_no_toml_is_refused(file: Path) -> None:
    assert "cannot be read" in refusal(file, "[profiles.code\nnovelty =")


def test_a_file_that_is_no_text_is_refused(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match=r"weights\.toml cannot be read"):
        load_profiles(file)


def test_a_missing_file_is_refused(file: Path) -> None:
    with pytest.raises(KpBatchError, match=r"weights\.toml cannot be read: .*No such file"):
        load_profiles(file)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_profile_id_changes_with_any_weight(dimension: str) -> None:
    profile = undated()["code"]
    changed = replace(profile, **{dimension: getattr(profile, dimension) + 2.0**-54})
    assert changed.profile_id != profile.profile_id
    assert replace(profile, name="legal").profile_id != profile.profile_id
    assert replace(profile).profile_id == profile.profile_id
    assert profile.profile_id.startswith("code-")


def test_whole_and_decimal_weights_are_one_profile(file: Path) -> None:
    file.write_text(table("legal", 1, 0, 0, 0) + table("other", 1.0, 0.0, 0.0, 0.0), "utf-8")
    profiles = undated(file)
    assert replace(profiles["other"], name="legal").profile_id == profiles["legal"].profile_id


EQUAL = dict.fromkeys(DIMENSIONS, 0.25)
JUNE = datetime(2026, 6, 1, tzinfo=UTC)
US = timedelta(microseconds=1)


def dated(name: str, *begins: str) -> str:
    """Tables of a name, each with other weights; `begins` are TOML, "" for none."""
    return "".join(
        table(name, place / 10, 0.9 - place / 10, 0.1, 0).replace(f"[profiles.{name}]", head)
        for place, begin in enumerate(begins, 1)
        for head in [f"[[profiles.{name}]]\n" + (f"from = {begin}" if begin else "")]
    )


def complexities(versions: ProfileVersions, name: str, *moments: datetime) -> list[float | None]:
    profiles = (versions.at(moment).get(name) for moment in moments)
    return [profile and profile.complexity for profile in profiles]


def test_weights_hold_from_their_date_until_the_next(file: Path) -> None:
    file.write_text(dated("code", "", "2026-06-01", "2026-06-01T14:00:00.000001+02:00"))
    noon = JUNE + timedelta(hours=12) + US
    moments = (JUNE - US, JUNE, noon - US, noon, noon.astimezone(timezone(timedelta(hours=9))))
    assert complexities(load_profiles(file), "code", *moments) == [0.1, 0.2, 0.2, 0.3, 0.3]


def test_before_the_first_date_hold_the_built_in_weights_or_none(file: Path) -> None:
    file.write_text(dated("code", "2026-06-01") + dated("legal", "2026-06-01"))
    versions = load_profiles(file)
    assert complexities(versions, "code", JUNE - US, JUNE) == [0.2, 0.1]
    assert complexities(versions, "legal", JUNE - US, JUNE) == [None, 0.1]


def test_equal_weights_at_two_times_are_one_profile() -> None:
    other = {**EQUAL, "complexity": 0.0, "novelty": 0.5}
    again = [EQUAL, {"from": "2026-06-01", **other}, {"from": "2026-07-01", **EQUAL}]
    assert len(parse_profiles({"code": again}, "x").profiles) == 3  # default among them


@pytest.mark.parametrize(
    "begin",
    [
        *(date(2026, 6, 1), JUNE, "2026-06-01", "2026-06-01T00:00:00Z"),
        JUNE.astimezone(timezone(timedelta(hours=-3))),
    ],
)
def test_a_date_is_written_as_a_day_where_it_is_a_days_start(begin: object) -> None:
    versions = parse_profiles({"code": [EQUAL, {"from": begin, **EQUAL}]}, "x")
    assert versions.as_json()["code"] == [EQUAL, {"from": "2026-06-01", **EQUAL}]


def test_weights_survive_json(file: Path) -> None:
    text = dated("code", "2026-06-01T00:00:00.5Z", "2026-07-01") + dated("legal", "2026-06-01")
    file.write_text(text + table("law", 1, 0, 0, 0))
    versions = load_profiles(file)
    assert parse_profiles(versions.as_json(), "x") == versions
    assert versions.as_json()["law"] == {**dict.fromkeys(DIMENSIONS, 0.0), "complexity": 1.0}


def test_every_fault_of_dates_is_reported_at_once(file: Path) -> None:
    text = "\n".join(
        [
            dated("twice", "2026-06-01", "2026-06-01T02:00:00+02:00"),
            dated("descending", "", "2026-06-02", "2026-06-01"),
            dated("missing", "2026-06-01", ""),
            dated("local", "2026-06-01T00:00:00"),
            dated("clock", "07:30:00"),
            dated("number", "20260601"),
            dated("text", '"soon"'),
            dated("spaced", '"2026-06-01 00:00"'),
            dated("compact", '"20260601"'),
            dated("early", "", "0001-01-01T00:00:00+02:00"),
            dated("sum", "").replace("0.8", "0.9"),
        ]
    )
    day = "from must be a day such as 2026-01-31, or a time with a zone, got"
    faults = refusal(file, text + "[profiles]\nempty = []").split(": ", 1)[1].split("; ")
    assert faults == [
        "twice: two entries from 2026-06-01",
        "descending: the entry from 2026-06-01 stands after 2026-06-02",
        "missing (entry 2): from is missing, which the first entry alone may leave out",
        "local: from has no time zone: write 2026-06-01T00:00:00Z, for example",
        f"clock: {day} datetime.time(7, 30)",
        f"number: {day} 20260601",
        f"text: {day} 'soon'",
        "spaced: from has no time zone: write 2026-06-01 00:00Z, for example",
        f"compact: {day} '20260601'",
        *(fault for fault in faults if fault.startswith("early (entry 2): from must be a day")),
        "sum: the weights sum to 1.1, not 1",
        "empty: no table of weights",
    ]
    assert len(faults) == 12


def test_entries_are_numbered_in_their_order(file: Path) -> None:
    table = "complexity = 1, novelty = 0, tool_diversity = 0, outcome_confidence = 0"
    entries = f'[1, {{{table}, from = 2026-06-01}}, {{{table}, from = "soon"}}]'
    faults = refusal(file, f"[profiles]\nodd = {entries}").split(": ", 1)[1].split("; ")
    assert faults == [
        "odd (entry 1): expected a table of four weights, got 1",
        "odd (entry 3): from must be a day such as 2026-01-31, or a time with a zone, got 'soon'",
    ]
