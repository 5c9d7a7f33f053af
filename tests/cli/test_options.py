"""The options that are made of the settings of a run."""

import re
from importlib import import_module
from typing import Any

import click
import pytest

from kp_batch.cli import kp_batch
from kp_batch.cli.options import SettingsCommand, config_of
from kp_batch.config import RescoreConfig
from kp_batch.settings import TABLES, Limits, Settings
from tests.support.make.runs import least

FLAGS = [name for name, field in RescoreConfig.model_fields.items() if field.annotation is bool]
OF_PROJECTS = [
    name for name in FLAGS if any(name in table.model_fields for table in TABLES.values())
]

# What a plan depends on, besides settings that the warehouse keeps, and limits.
OF_PLANS = {
    *("project", "archive", "warehouse", "exclude", "prune"),
    *("allow_audit", "restore_vectors", "ignore_rollback"),
}


def given(*arguments: str) -> dict[str, Any]:
    """The settings that these arguments of a command give."""
    command = SettingsCommand("run", params=[click.Option(["--warehouse"]), click.Option(["--as"])])
    values = command.make_context("run", [*arguments]).params
    return {name: value for name, value in values.items() if name in RescoreConfig.model_fields}


@pytest.mark.parametrize("name", OF_PROJECTS)
def test_what_a_project_turns_on_can_be_turned_off_again(name: str) -> None:
    on, off = f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"
    assert [given(on)[name], given(on, off)[name], given(off, on)[name]] == [True, False, True]


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_that_no_project_has_is_only_turned_on(name: str) -> None:
    on, off = f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"
    assert given(on)[name]
    if name not in OF_PROJECTS:
        with pytest.raises(click.NoSuchOption):
            given(off)


def test_a_share_is_an_option_in_percent_or_as_a_decimal() -> None:
    places = {"archive": ("a",), "warehouse": "w"}
    with click.Context(click.Command("run")):
        for text in ("5%", "0.05"):
            settings = given("--max-reject-share", text) | places
            assert config_of(settings).max_reject_share == "5%"
        assert config_of(given() | places).max_reject_share == least().max_reject_share
        with pytest.raises(click.UsageError, match="--max-reject-share: a share must be such"):
            config_of(given("--max-reject-share", "5") | places)


def test_help_groups_the_options_by_how_long_they_hold() -> None:
    command = SettingsCommand("run", params=[click.Option(["--warehouse"]), click.Option(["--as"])])
    with click.Context(command, info_name="run", terminal_width=200) as context:
        lines = command.get_help(context).splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Settings that stay with the warehouse:",
        "Of this run alone:",
        "Limits, above which the run fails:",
    ]
    groups: dict[str, list[str]] = {}
    for line in lines:
        title = line if line in titles else next(reversed(groups), "")
        groups.setdefault(title, []).extend(re.findall(r"^  (?:-\w, )?--([a-z-]+)", line))
    kept, of_run, limits = ([*map(field, groups[title])] for title in titles)
    assert set(kept) == set(Settings.model_fields)
    assert {"warehouse", "as", "exclude", "prune", "wait", "help"} < set(of_run)
    fields = set(RescoreConfig.model_fields) - {"archive", "project", "warehouse_id"}
    assert set(limits) == {name for name in fields if name.startswith("max_")} | {"timeout"}
    assert fields <= {*kept, *of_run, *limits}
    assert len([*kept, *of_run, *limits]) == len({*kept, *of_run, *limits})  # each once


def test_plan_takes_what_a_plan_depends_on() -> None:
    import_module("kp_batch.cli.run")
    command = kp_batch.commands["plan"]
    taken = {param.name for param in command.get_params(click.Context(command))}
    kept = Settings.model_fields.keys() | Limits.model_fields.keys()
    others = RescoreConfig.model_fields.keys() - kept
    assert taken & others == OF_PLANS, "name it in OF_PLANS, or in `without` of plan in cli/run.py"


def field(option: str) -> str:
    return option.replace("-", "_")
