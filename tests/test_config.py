import json
from dataclasses import asdict
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.errors import KpBatchError
from kp_batch.scoring.profiles import load_profiles
from kp_batch.settings import Settings
from kp_batch.text import format_duration
from kp_batch.warehouse.manifest import Manifest
from tests.support.make.profiles import LEGAL
from tests.support.make.runs import least

DAY = timedelta(days=1)


@pytest.mark.parametrize("ttl", [None, 7 * DAY])
def test_a_ttl_is_given_as_text_or_as_it_is(ttl: timedelta | None) -> None:
    for form in (ttl, format_duration(ttl)):
        assert RescoreConfig(archive=("a",), warehouse=Path("w"), ttl=form).ttl == ttl


@pytest.mark.parametrize("ttl", ["90", "0s", "", timedelta(0), -DAY, DAY / 86_400_000_000])
def test_a_wrong_ttl_is_refused(ttl: str | timedelta) -> None:
    with pytest.raises(ValidationError, match="a duration must be "):
        RescoreConfig(archive=("a",), warehouse=Path("w"), ttl=ttl)


def test_every_setting_is_described() -> None:
    for name, field in RescoreConfig.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_defaults_are_the_live_engines() -> None:
    config = RescoreConfig(archive=("a", "b"), warehouse=Path("w"))
    assert config.model_dump() == {
        "project": None,
        "archive": ("a", "b"),
        "warehouse": Path("w"),
        "warehouse_id": None,
        "ignore_rollback": False,
        "exclude": (),
        "embedder": "minilm",
        "precision": "float32",
        "cache_size": 1_000,
        "ttl": "none",
        "cache_by": "none",
        "profiles": load_profiles().as_json(),
        "threshold": 0.75,
        "trace_text": True,
        "reject_text": True,
        "audits": {},
        "preview": False,
        "output": None,
        "allow_audit": (),
        "prune": False,
        "keep": "none",
        "report": False,
        "restore_vectors": False,
        "max_reject_share": "5%",
        "max_removed": None,
        "max_unreadable": None,
        "max_gone": None,
        "max_new_rejects": None,
        "ray": None,
        "wait": False,
        "timeout": "none",
        "note": None,
    }


def test_a_config_survives_json(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(LEGAL)
    config = RescoreConfig(
        archive=("a",),
        warehouse=Path("w"),
        ttl="90m",
        profiles=tmp_path / "p.toml",
        threshold=1,
        prune=True,
        max_unreadable=5,
    )
    assert RescoreConfig.model_validate_json(config.model_dump_json()) == config
    assert config.profiles.versions["legal"][0].profile.novelty == 0.25
    assert config.max_unreadable == "5"


def test_what_is_left_out_is_as_the_warehouse_has_it() -> None:
    kept = least(embedder="hashing", ttl="7d", profiles="default").settings
    assert set(kept) == set(Settings.model_fields)
    assert least().with_defaults({}) == least()
    assert least().with_defaults(kept).settings == kept
    chosen = least(ttl="none", embedder="minilm", prune=True).with_defaults(kept)
    assert chosen.settings == kept | {"ttl": "none", "embedder": "minilm"}
    assert chosen.prune
    assert least(ttl=None).with_defaults(kept).settings == kept  # as a form sends it


def test_one_text_is_read_as_a_list_of_it() -> None:
    config = least(archive="a", exclude="*.tmp", allow_audit="few_copies")
    assert (config.archive, config.exclude, config.allow_audit) == (
        ("a",),
        ("*.tmp",),
        ("few_copies",),
    )


def test_a_models_folder_is_kept_by_its_full_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("model", "minilm"):
        (tmp_path / name).mkdir()
    assert least(embedder="model").settings["embedder"] == str(tmp_path / "model")
    assert least(embedder="minilm").settings["embedder"] == "minilm"
    assert least(embedder="org/model").settings["embedder"] == "org/model"


def test_the_built_in_profiles_are_given_by_name(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(LEGAL)
    kept = least(profiles=tmp_path / "p.toml").settings
    names = least().with_defaults(kept).profiles.versions.keys()
    assert names == load_profiles().versions.keys() | {"legal"}
    assert least(profiles="default").with_defaults(kept).profiles == load_profiles()


def test_a_setting_of_the_warehouse_that_there_is_no_more_is_passed_over() -> None:
    assert least().with_defaults({**least().settings, "since": "2026-01-05"}) == least()


@pytest.mark.parametrize(
    "kept",
    [
        {"threshold": "high"},
        {"threshold": 10**400},
        {"threshold": float("nan")},
        {"cache_size": 0},
        {"cache_size": "9"},
        {"embedder": ["none"]},
        {"ttl": 7},
        {"trace_text": "perhaps"},
        {"reject_text": "perhaps"},
        {"profiles": []},
        {"profiles": {"default": {"novelty": "1"}}},
        {"profiles": {"default": [{"from": 1}]}},
        {"profiles": {"default": [1]}},
        {"audits": {"a": {"sql": 1}}},
    ],
    ids=str,
)
def test_what_a_warehouse_keeps_is_checked_before_a_run_takes_it(kept: dict[str, Any]) -> None:
    with pytest.raises(KpBatchError):
        least().with_defaults(kept)


def test_a_form_sends_no_setting_of_the_warehouse_that_nobody_chose() -> None:
    shown = RescoreConfig.model_json_schema()["properties"]
    assert not any("default" in field for field in shown.values())
    assert all(shown[name].get("type") for name in Settings.model_fields)


def test_a_config_is_frozen() -> None:
    config = RescoreConfig(archive=("a",), warehouse=Path("w"))
    with pytest.raises(ValidationError, match="frozen"):
        config.threshold = 0.5


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 0),
        ({"wait": True}, inf),
        ({"wait": False}, 0),
        ({"wait": "90s"}, 90),
        ({"wait": "none"}, 0),  # what a project has is taken back
        ({"wait": 2 * DAY}, 172_800),
    ],
)
def test_how_long_another_run_is_waited_for(settings: dict[str, Any], seconds: float) -> None:
    assert least(**settings).wait_s == seconds


@pytest.mark.parametrize("name", ["wait", "timeout"])
@pytest.mark.parametrize("value", ["90", "0s", "1.5h", "-1s", "soon", -DAY, DAY / 7e9])
def test_a_wrong_duration_is_refused(name: str, value: Any) -> None:
    with pytest.raises(KpBatchError, match=rf"--{name}(: | is )a (duration|wait)"):
        RescoreConfig.read({"archive": ["a"], "warehouse": "w", name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"embedder": ""},
        {"cache_size": 0},
        {"cache_size": 1.5},
        {"cache_size": 10**19},
        {"threshold": -0.01},
        {"threshold": 1.01},
        {"threshold": float("nan")},
        {"profiles": 3},
        {"prune": 2},
        {"max_reject_share": -0.01},
        {"max_reject_share": 1.01},
        {"max_reject_share": float("nan")},
        {"max_reject_share": 5e-324},
        {"cachesize": 10},
        {"ray": 0},
        {"ray": "1025"},
        {"ray": ""},
        {"ray": True},
        {"max_unreadable": -1},
        {"max_unreadable": "five"},
        {"max_unreadable": "101%"},
        {"max_unreadable": True},
        {"max_unreadable": "0.05"},  # of files, a number is how many
        {"max_unreadable": "2.5"},
        {"max_unreadable": "100.1%"},
        {"max_unreadable": "%"},
        {"max_unreadable": "5 %"},
        {"max_unreadable": "\u0665%"},
        {"max_reject_share": "5"},
        {"max_reject_share": "5,5%"},
        {"max_reject_share": "100.000001%"},
        {"max_reject_share": True},
        {"max_reject_share": None},
    ],
    ids=str,
)
def test_what_is_out_of_range_or_unknown_is_refused(change: dict[str, Any]) -> None:
    settings = {"archive": ("a",), "warehouse": Path("w")} | change
    with pytest.raises(ValidationError, match=next(iter(change))):
        RescoreConfig(**settings)


NUMBERS: list[Any] = [
    *(sign * base**power for base in (2, 10) for power in range(0, 400, 9) for sign in (1, -1)),
    *(number + one for number in (0, 2**31, 2**53, 2**63, 2**64) for one in (-1, 0, 1)),
    *(0.0, -0.0, 5e-324, 1 - 2**-53, 1.0, 1 + 2**-52, 1e308, float("inf"), float("nan")),
]
TTLS = [f"{number}{unit}" for number in NUMBERS[:120] for unit in "smhd"]
EXTREMES: dict[str, list[Any]] = {
    "cache_size": NUMBERS,
    "threshold": NUMBERS,
    **{
        name: [*NUMBERS, *map(str, NUMBERS), *(f"{number}%" for number in NUMBERS)]
        for name in RescoreConfig.model_fields
        if name.startswith("max_")
    },
    "ray": [*NUMBERS, *map(str, NUMBERS)],
    "ttl": [*TTLS, timedelta.max, timedelta.max - timedelta(microseconds=999_999)],
    "cache_by": ["+", "a+none", "é+_", ("none",), ("b", "a", "a"), ("a+b",), ("",), ("a b",)],
    "profiles": [{"code": dict.fromkeys(DIMENSIONS, number)} for number in NUMBERS]
    + [
        {"code": dict(zip(DIMENSIONS, (number, 1 - number, 0, 0), strict=True))}
        for number in NUMBERS
        if -1 < number < 2
    ],
}


def config_or_fault(name: str, value: Any) -> RescoreConfig | str:
    try:
        return RescoreConfig.read({"archive": ["a"], "warehouse": "w", name: value})
    except KpBatchError as error:
        return str(error)


def test_no_number_is_left_out_of_the_extremes() -> None:
    numbers = (int, float, int | None, float | None)
    fields = RescoreConfig.model_fields.items()
    assert {name for name, field in fields if field.annotation in numbers} <= EXTREMES.keys()


@pytest.mark.parametrize("name", EXTREMES)
def test_every_value_is_refused_by_name_or_kept_so_that_it_can_be_read(name: str) -> None:
    outcomes = [(value, config_or_fault(name, value)) for value in EXTREMES[name]]
    for value, config in outcomes:
        if isinstance(config, str):
            assert name.replace("_", "-") in config or name in config, value
            continue
        kept = json.loads(json.dumps(config.settings))
        assert Manifest.read(asdict(Manifest(kept, {}))).settings == config.settings, value
        again = least().with_defaults(kept)
        assert (again.settings, again.profiles, again.ttl) == (kept, config.profiles, config.ttl)
        assert RescoreConfig.model_validate_json(config.model_dump_json()) == config, value
    assert {type(config) for _, config in outcomes} == {RescoreConfig, str}


def test_faults_in_the_values_of_a_form_are_reported_in_one_line_all_at_once(
    tmp_path: Path,
) -> None:
    values = {"archive": ["a"], "warehouse": str(tmp_path)}
    assert RescoreConfig.read(values) == least(warehouse=tmp_path)
    assert RescoreConfig.read(least()) == least()
    with pytest.raises(KpBatchError) as refused:
        RescoreConfig.read(values | {"ttl": "soon", "cachesize": 3, "max_unreadable": "few"})
    message = str(refused.value)
    assert message.startswith("the settings of the run have faults: --ttl: a duration must be ")
    assert "; --max-unreadable: a limit must be " in message
    assert "; there is no key 'cachesize', did you mean 'cache_size'? keys: " in message
    with pytest.raises(
        KpBatchError, match=r"the profiles file nothing\.toml cannot be read: No such"
    ):
        RescoreConfig.read(values | {"profiles": "nothing.toml"})


def test_a_form_with_half_of_a_deployment_is_refused_because_it_replaces_all() -> None:
    told = (
        r"--warehouse is missing; a config that is given replaces all of the deployment's: repeat"
    )
    with pytest.raises(KpBatchError, match=told):
        RescoreConfig.read({"max_gone": 1})
    with pytest.raises(KpBatchError) as refused:
        RescoreConfig.read({"warehouse": "w", "ttl": "soon"})
    assert "deployment" not in str(refused.value)
