"""No id and no text of a forgotten trace is kept, in whatever messages it has stood."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kp_batch.config import RescoreConfig
from kp_batch.errors import AuditError, KpBatchError
from kp_batch.operations.forget import forget
from kp_batch.operations.preview import preview
from kp_batch.pipeline import rescore
from kp_batch.pipeline.rescore import rescore_and_report
from kp_batch.storage.store import store_at
from kp_batch.warehouse.audits import Audit, Audits
from kp_batch.warehouse.layout import Layout
from tests.support.kill.removal import said
from tests.support.make.archives import write_jsonl
from tests.support.processes.buckets import Machine, make_bucket

pytestmark = pytest.mark.process

SECRET, WORDS = "kp:trace:unspeakable-7", "whispered plan"
OTHERS = [said(number, f"fix {number}", 8 + number) for number in range(4)]
FORGOTTEN = said("", WORDS, 9, id=SECRET)
REJECTED = said("", f"{WORDS} again", 9, id=SECRET, confidence=7.0)
REPLACED = said("", f"{WORDS} once", 8, id=SECRET)


def audits(sql: str, severity: Any = "error") -> Audits:
    return Audits({"of_ids": Audit(sql, severity)})


class LibraryError(Exception):
    """As a library raises, which quotes what it was given."""


def crashed(*_: object) -> None:
    raise LibraryError(f"cannot convert {SECRET}, '{WORDS}'")


def appear_everywhere(machine: Machine, archive: Path) -> Iterator[str]:
    """Let runs tell of the secret in every way; gives their messages."""

    def config(**settings: Any) -> RescoreConfig:
        values = {"archive": (str(archive),), "warehouse": machine.url, "embedder": "hashing"}
        values |= {"max_reject_share": 1}
        return RescoreConfig.model_validate({**values, **settings})

    def fails(kind: type[Exception] = KpBatchError, **settings: Any) -> str:
        with pytest.raises(kind) as caught:
            rescore_and_report(config(**settings))
        return str(caught.value)

    path = archive / "a.jsonl"
    write_jsonl(path, [*OTHERS, REPLACED])
    rescore_and_report(config(audits=audits("FROM scores", "warn")))
    write_jsonl(path, [*OTHERS, FORGOTTEN, REJECTED])
    rescore_and_report(config(report=True))
    write_jsonl(path, [*OTHERS, REJECTED])
    yield fails(max_removed=0)
    write_jsonl(path, [*OTHERS, FORGOTTEN, REJECTED, REPLACED])
    yield fails(audits=audits("SELECT trace_id::INT FROM scores WHERE len(trace_id) > 12"))
    yield fails(audits=audits("SELECT (raw->'task'->>'objective')::INT FROM rejects"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescore, "write_tables", crashed)
        yield fails(LibraryError)
    with pytest.raises(AuditError) as refused:
        preview(config(audits=audits("SELECT trace_id, score FROM scores")))
    yield repr(refused.value.results)


def places(folder: Path) -> Iterator[Path]:
    """Each file below a folder whose name or content has the secret."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = str(path).encode() + path.read_bytes()
            if path.suffix == ".parquet":
                content += repr(pl.read_parquet(path, hive_partitioning=False).rows()).encode()
            if SECRET.encode() in content or WORDS.encode() in content:
                yield path


@pytest.mark.telling
def test_law_nothing_of_a_forgotten_trace_is_kept(s3: str, tmp_path: Path) -> None:
    """Neither in the working copy, which is like any folder, nor in the bucket."""
    bucket = f"{make_bucket(s3, 'kp-forgotten')}/warehouse"
    machine, there = Machine(tmp_path / "cache", bucket), tmp_path / "there"
    with machine.here() as folder:
        messages = [*appear_everywhere(machine, tmp_path / "archive")]
        # As libraries print, and as Prefect keeps where no server is configured.
        Layout(folder).output.write_text(SECRET)
        Layout(folder).prefect.mkdir(exist_ok=True)
        (Layout(folder).prefect / "prefect.db").write_text(SECRET)
        assert [SECRET in message or WORDS in message for message in messages[1:]] == [True] * 4
        kept = {path.relative_to(folder).parts[0] for path in places(folder)}
        names = {"scores", "facts", "rejects", "candidate", "report.html", "last-run.log"}
        assert kept == names | {"prefect"}
        forget(folder, [SECRET])
        store = store_at(bucket)
        for entry in store.objects():
            copy = there / entry.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(store.read(entry.path)[0])
        for each in (tmp_path / "cache", folder, there):
            assert not [*places(each)]
        assert (there / "last-run.json").exists()
        assert json.loads((folder / "last-run.json").read_text())["last_run"]["reason"]
