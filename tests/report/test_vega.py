"""The script that draws the charts is bundled once, and kept."""

from pathlib import Path

import altair as alt
import pytest
import vl_convert

from kp_batch.report.page import vega
from kp_batch.report.vega_lite import VEGA_LITE


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where it is kept, for the first time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kp-batch"


def script() -> str:
    vega.cache_clear()
    return vega()


def test_the_script_is_bundled_once_and_a_damaged_one_again(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled: list[str] = []

    def bundle(snippet: str, version: str) -> str:
        bundled.append(version)
        return f"// {version}\n{snippet} \N{SNOWMAN}"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    first = script()
    assert script() == first
    assert bundled == [VEGA_LITE]
    [path] = kept.iterdir()
    path.write_text(path.read_text("utf-8")[:-1], "utf-8")
    assert script() == first
    assert len(bundled) == 2
    assert script() == first
    assert [file.name for file in kept.iterdir()] == [path.name]
    vega.cache_clear()


def test_where_nothing_can_be_kept_it_is_bundled_each_time(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.write_text("no folder")
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda *_: "script")
    assert script() == "script"
    vega.cache_clear()


def test_charts_are_drawn_and_checked_in_the_version_that_they_are_written_for() -> None:
    assert VEGA_LITE in vl_convert.get_vegalite_versions()
    assert alt.VEGALITE_VERSION.startswith(f"{VEGA_LITE}.")
