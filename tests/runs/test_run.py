"""What a run begins with: the archive and the settings that it was not given."""

from pathlib import Path
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.runs.run import effective_config


@pytest.mark.parametrize(
    ("given", "excluded"),
    [
        ({}, ("x",)),
        ({"archive": ["a"]}, ("x",)),
        ({"archive": ["a", "c"]}, ()),
        ({"exclude": ["y"]}, ("y",)),
    ],
)
def test_what_is_excluded_goes_with_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], excluded: tuple[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'warehouse = "w"\narchive = ["a", "b"]\n[run]\nexclude = ["x"]\n'
    file = tmp_path / "kp_batch.toml"
    file.write_text(text)
    values = {"project": file, "warehouse": tmp_path / "other", **given}
    other = RescoreConfig.model_validate(values)
    assert effective_config(other).exclude == excluded
