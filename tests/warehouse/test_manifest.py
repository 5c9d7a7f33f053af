"""A manifest.json that somebody else wrote: what it holds is checked before it is used."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.errors import WarehouseError
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.schemas import TABLES
from kp_batch.settings import Settings
from kp_batch.warehouse.bucket.location import folder_of
from kp_batch.warehouse.manifest import FORMAT_VERSION, Manifest, read_manifest, require_manifest
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.reasons import complete
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.kept import unpacked
from tests.support.read.errors import fails_with

SETTINGS: dict[str, Any] = {"threshold": 0.75}


def write(
    warehouse: Path, settings: Any, tables: Any, *, failed: Any = False, unique: Any = "a" * 32
) -> None:
    """Write a manifest as an attacker does, who knows how its publication is made."""
    text = published(settings, tables, failed=failed, unique=unique).as_json()
    (warehouse / "manifest.json").write_text(text)


def published(
    settings: Any, tables: Any, *, failed: Any = False, unique: str = "a" * 32
) -> Manifest:
    return Manifest(settings, tables, failed).as_publication(unique)


LISTS = {"2026-01": "b" * 32}


def test_a_threshold_that_is_sql_runs_nothing(tmp_path: Path) -> None:
    stolen = tmp_path / "stolen.csv"
    threshold = f"""0.5 FROM range(1); COPY (SELECT 1) TO '{stolen}'; --" '"""
    write(tmp_path, {"threshold": threshold}, {})
    with pytest.raises(WarehouseError, match="is damaged"), connect(tmp_path):
        pass
    assert not stolen.exists()


DAMAGES: dict[str, Mapping[str, Any]] = {
    "threshold as text": {"settings": {"threshold": "0.5"}},
    "threshold as a truth": {"settings": {"threshold": True}},
    "threshold beyond its bounds": {"settings": {"threshold": 10**400}},
    "threshold that is no number": {"settings": {"threshold": float("nan")}},
    "a list of settings": {"settings": [1]},
    "a cache size as text": {"settings": {"cache_size": "9"}},
    "an unknown table": {"tables": {"../x": LISTS}},
    "a version of a table": {"tables": {"runs": 0}},
    "a list of lists": {"tables": {"runs": ["b" * 32]}},
    "a month as no calendar has it": {"tables": {"runs": {"2026": "b" * 32}}},
    "a list that leads elsewhere": {"tables": {"runs": {"2026-01": "../../" + "b" * 26}}},
    "a list as a number": {"tables": {"runs": {"2026-01": 1}}},
    "a list of tables": {"tables": ["runs"]},
    "failed as text": {"failed": "no"},
    "an id of other letters": {"unique": "-->" + "a" * 29},
    "an id that is too short": {"unique": "a"},
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_no_run_writes_is_reported_as_damage(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{"settings": SETTINGS, "tables": {}, **DAMAGES[name]})
    with pytest.raises(WarehouseError, match=r"manifest\.json is damaged; restore"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"\xff", b"1", b"null", b"[]", b"{}", b"[" * 200_000, b'{"format_version": {}}'],
)
def test_what_is_no_manifest_is_reported_as_damage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(WarehouseError, match=r"manifest\.json is damaged; restore"):
        read_manifest(tmp_path)


def test_of_another_format_in_a_bucket_the_url_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copy = Path(folder_of("s3://bucket/team"))
    copy.mkdir(parents=True)
    (copy / "manifest.json").write_text(f'{{"format_version": {FORMAT_VERSION - 1}}}')
    with fails_with(
        WarehouseError, "other_format", r"kp-batch migrate --warehouse s3://bucket/team$"
    ):
        read_manifest(copy)


def test_all_that_a_run_keeps_is_read_again(tmp_path: Path) -> None:
    settings = RescoreConfig(archive=("a",), warehouse=tmp_path, embedder="none").settings
    assert settings.keys() == set(Settings.model_fields)
    write(tmp_path, settings, dict.fromkeys(TABLES, LISTS))
    assert read_manifest(tmp_path) == published(settings, dict.fromkeys(TABLES, LISTS))


def test_an_older_warehouse_has_a_value_of_each_setting(tmp_path: Path) -> None:
    oldest = require_manifest(unpacked(FORMAT_VERSION, 5, tmp_path)).settings
    assert complete(oldest).keys() == set(Settings.model_fields)
    assert [*complete(oldest)][: len(oldest)] == [*oldest]


@pytest.mark.telling
@pytest.mark.slow
@pytest.mark.parametrize("name", ["scores", "facts", "runs"])
def test_a_list_that_a_warehouse_lacks_is_reported_with_what_to_do(
    tmp_path: Path, name: str
) -> None:
    write_jsonl(tmp_path / "a.jsonl", [trace(id="a")])
    warehouse = tmp_path / "warehouse"
    settings = RescoreConfig(
        archive=(str(tmp_path / "a.jsonl"),), warehouse=warehouse, embedder="none"
    )
    rescore_archive(settings)
    manifest = read_manifest(warehouse)
    assert manifest
    write(warehouse, manifest.settings, {**manifest.tables, name: LISTS})
    message = r"the list of files b{32}\.json in .* is gone; restore it from a copy"
    with pytest.raises(WarehouseError, match=message):
        rescore_archive(settings)
