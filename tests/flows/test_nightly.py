"""The flow that imports first: its settings are read before any work, and its disk may fail."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from prefect.runtime import flow_run

from kp_batch import flows
from kp_batch.errors import KpBatchError, SettingError
from kp_batch.flows.tasks import FLOW, artifact_name
from kp_batch.imports import change
from kp_batch.imports.import_config import ImportConfig
from kp_batch.warehouse.last_run import LastRuns
from tests.support.imports.importing import imported, kp_trace, write_json
from tests.support.kill.retries import once_torn

pytestmark = pytest.mark.prefect


@pytest.fixture
def import_settings(tmp_path: Path) -> dict[str, Any]:
    write_json(tmp_path / "source" / "a.json", kp_trace("a"))
    return {"sources": [str(tmp_path / "source")], "archive": str(tmp_path / "archive")}


@pytest.mark.telling
def test_all_settings_are_read_before_the_first_import(
    import_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "silence_at_exit", lambda: None)
    config = {"archive": [import_settings["archive"]], "warehouse": str(tmp_path / "warehouse")}
    wrong = {**import_settings, "format": "otel"}
    with pytest.raises(KpBatchError, match="of import 2 have faults: --format: 'otel' is none"):
        flows.import_and_rescore.fn(config, [import_settings, wrong])
    with pytest.raises(KpBatchError, match="of the run have faults: --ttl"):
        flows.import_and_rescore.fn({**config, "ttl": "soon"}, [import_settings])
    assert not Path(import_settings["archive"]).exists()


@pytest.mark.telling
def test_each_warehouse_has_keys_of_its_own() -> None:
    first, second = (artifact_name(Path(folder) / "Ware house's é_") for folder in ("/a", "/b"))
    assert re.fullmatch("ware-house-s-[0-9a-f]{8}", first)
    assert first != second
    long, odd = (artifact_name(Path("/a") / name) for name in ("x" * 200, "倉庫"))
    assert re.fullmatch("x{40}-[0-9a-f]{8}", long)
    assert re.fullmatch("[0-9a-f]{8}", odd)


@pytest.mark.telling
@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"warehouse": "/a/wh"}, "/a/wh"),
        ({"warehouse": "s3://bucket/wh"}, "s3://bucket/wh"),
        ({"warehouse": "s3://user:secret@bucket/wh"}, "no warehouse"),
        ({"warehouse": 5}, "no warehouse"),
        ([], "no warehouse"),
        (None, "no warehouse"),
    ],
)
def test_a_flow_run_is_named_by_its_warehouse_and_when_it_began(
    config: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_run, "parameters", {"config": config}, raising=False)
    warehouse, day, minute = FLOW["flow_run_name"]().rsplit(" ", 2)
    assert warehouse == name
    began = datetime.fromisoformat(f"{day}T{minute}+00:00")
    assert timedelta() <= datetime.now(UTC) - began < timedelta(minutes=2)
    assert flows.import_and_rescore.flow_run_name is FLOW["flow_run_name"]


@pytest.mark.telling
@pytest.mark.parametrize("preview", [False, True])
def test_a_flow_whose_settings_cannot_be_leaves_that_unless_it_is_a_preview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, preview: bool
) -> None:
    monkeypatch.setattr(flows, "silence_at_exit", lambda: None)
    (tmp_path / "manifest.json").touch()
    config: Any = {"warehouse": str(tmp_path), "archive": ["a"], "ttl": "soon", "preview": preview}
    with pytest.raises(SettingError, match="--ttl"):
        flows.import_and_rescore.fn(config, [])
    mark = LastRuns.read(tmp_path).last_run
    assert (mark and mark.code) == (None if preview else "settings")
    with pytest.raises(SettingError, match="--warehouse"):  # which nothing can be left in
        flows.import_and_rescore.fn(cast("Any", {"archive": ["a"]}), [])


@pytest.mark.telling
def test_a_preview_is_refused_before_anything_is_imported(
    import_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "silence_at_exit", lambda: None)
    config: Any = {"archive": [import_settings["archive"]], "warehouse": str(tmp_path / "w")}
    with pytest.raises(
        SettingError, match="imports into the archive; preview with the flow rescore"
    ):
        flows.import_and_rescore.fn({**config, "preview": True}, [import_settings])
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.telling
def test_an_import_that_a_limit_fails_ends_the_flow(
    import_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "silence_at_exit", lambda: None)
    (tmp_path / "source" / "cut.json").write_text("{")
    limited = ImportConfig.read({**import_settings, "max_refused": 0, "max_unreadable": 0}, 1)
    with pytest.raises(KpBatchError, match="more than --max-unreadable 0 allows"):
        flows.import_new.fn(limited)
    with pytest.raises(KpBatchError, match="have faults: --max-refused: a limit must be"):
        ImportConfig.read({**import_settings, "max_refused": "few"}, 1)


@pytest.mark.telling
def test_an_import_whose_disk_fails_is_tried_again(
    import_settings: dict[str, Any],
    waited: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change, "write_days", once_torn(change.write_days))
    flows.import_new.fn(ImportConfig.read(import_settings, 1))
    assert imported(Path(import_settings["archive"])).keys() == {"kp:trace:a"}
    assert waited == [5]
