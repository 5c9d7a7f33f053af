"""Faults are reported in this program's words, with the name that was probably meant."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from kp_batch.config import RescoreConfig
from kp_batch.conversion.rules import Rules, load_rules
from kp_batch.errors import KpBatchError
from kp_batch.faults import faults_of, unknown_key
from kp_batch.imports.import_config import ImportConfig
from kp_batch.settings import SettingsModel

VALUES = (
    *(True, 0, -1, 1.5, float("nan"), 1 << 70, "", "x", "1", "false"),
    *([], [1], [None], [["x"]], {}, {"x": 1}, {"always": "x"}, {"always": 7, "max": "y"}),
    *({"map": {"a": 1}, "from": 1}, {"score": [], "at_least": {}}, {"score": "x", "at_most": True}),
)
PYDANTIC = ("Input", "should", "permitted", "valid", "unable", "pydantic", "Value error")


REQUIRED: dict[type[BaseModel], dict[str, Any]] = {
    RescoreConfig: {"archive": ["a"], "warehouse": "w"},
    ImportConfig: {"sources": ["a"], "archive": "a"},
    Rules: {},
}


def message_of(model: type[BaseModel], values: dict[str, Any]) -> str:
    """What is said of these values; empty if they have no fault."""
    try:
        if model is Rules:
            load_rules(None, values)
        elif issubclass(model, SettingsModel):
            model.checked({**REQUIRED[model], **values})
        else:
            model.model_validate({**REQUIRED[model], **values})
    except KpBatchError as error:
        return str(error)
    except ValidationError as error:
        return faults_of(error, model, lambda place: " ".join(map(str, place)))
    return ""


@pytest.mark.parametrize(
    ("model", "name"), [(model, name) for model in REQUIRED for name in (*model.model_fields, "x")]
)
def test_no_fault_has_the_words_of_a_library(model: type[BaseModel], name: str) -> None:
    messages = [message_of(model, {name: value}) for value in VALUES]
    assert any(messages)
    assert [text for text in messages if any(word in text for word in PYDANTIC)] == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"archives": "a"},
            "there is no key 'archives', did you mean 'archive'? keys: project, archive, ",
        ),
        ({"threshold": 2}, "--threshold must be at most 1, got 2"),
        ({"cache_size": 2.5, "ray": 0}, "--cache-size must be a whole number, got 2.5; --ray"),
        ({"archive": {"x": "y" * 99}}, f"--archive must be a list, got {{'x': '{'y' * 52}…"),
    ],
)
def test_a_fault_names_its_option_and_value(values: dict[str, Any], message: str) -> None:
    assert message_of(RescoreConfig, values).startswith(message)


def test_a_missing_value_is_reported() -> None:
    with pytest.raises(KpBatchError, match="faults: --sources is missing; --archive is missing"):
        ImportConfig.read({}, 1)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("sqll", "a has no key 'sqll', did you mean 'sql'? keys: sql, severity"),
        ("more", "a has no key 'more'; keys: sql, severity"),
    ],
)
def test_an_unknown_key_is_reported_with_the_one_that_was_meant(key: str, message: str) -> None:
    assert unknown_key("a", key, ("sql", "severity")) == message
