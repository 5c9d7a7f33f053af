"""The options that are made of the settings of a run."""

from typing import Any

import click
import pytest

from kp_batch.cli.options import SettingsCommand, config_of
from kp_batch.config import RescoreConfig
from tests.support.runs import least

FLAGS = [name for name, field in RescoreConfig.model_fields.items() if field.annotation is bool]


def given(*arguments: str) -> dict[str, Any]:
    """The settings that these arguments of a command give."""
    command = SettingsCommand("run", params=[click.Option(["--warehouse"]), click.Option(["--as"])])
    values = command.make_context("run", [*arguments]).params
    return {name: value for name, value in values.items() if name in RescoreConfig.model_fields}


@pytest.mark.parametrize("name", FLAGS)
def test_what_is_turned_on_can_be_turned_off_again(name: str) -> None:
    on, off = f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"
    assert [given(on)[name], given(on, off)[name], given(off, on)[name]] == [True, False, True]


def test_a_share_is_an_option_in_percent_or_as_a_decimal() -> None:
    places = {"archive": ("a",), "warehouse": "w"}
    for text in ("5%", "0.05"):
        settings = given("--max-reject-share", text) | places
        assert config_of(settings).max_reject_share == "5%"
    assert config_of(given() | places).max_reject_share == least().max_reject_share
    with pytest.raises(click.UsageError, match="--max-reject-share: a share is 5%, say, or "):
        config_of(given("--max-reject-share", "5") | places)
