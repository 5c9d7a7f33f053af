"""The uploads of the page, by curl to a double of each system, once and twice."""

import json
import os
import subprocess
from base64 import b64encode
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from threading import Thread
from typing import Any

import pytest

from kp_batch.pipeline.rescore import rescore_archive
from tests.support.docs.pages import DOCS, blocks
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.read.sent_scores import SYSTEMS, Double, Row, sent

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not (which("curl") and which("jq")), reason="it needs curl and jq"),
]
PAGE = DOCS / "how-to" / "send-scores-back.md"
MOST_BYTES = 1_000_000  # that Langfuse takes at once
LOGIN = f"Basic {b64encode(b'public:secret').decode()}"


def items(path: str, body: Any) -> tuple[str, list[Row]]:
    """The system that a request is for, and the lines of the export that are in it."""
    if path == "/api/public/scores":
        return "langfuse", body
    if path == "/v1/span_annotations":
        return "phoenix", body["data"]
    assert path == "/v1/logs"
    return "otel", [{"resourceLogs": [resource]} for resource in body["resourceLogs"]]


@contextmanager
def doubles() -> Generator[tuple[str, Mapping[str, Double]]]:
    """A server, and the doubles of systems that it has."""
    there = {form: Double(system) for form, system in SYSTEMS.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            form, lines = items(self.path, json.loads(content))
            is_allowed = {
                "langfuse": self.headers["Authorization"] == LOGIN,
                "phoenix": self.headers["Authorization"] == "Bearer key",
            }.get(form, True)
            is_taken = is_allowed and len(content) <= MOST_BYTES
            if is_taken and self.headers["Content-Type"] == "application/json":
                there[form].upload(lines)
            self.send_response(202 if is_taken else 403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", there
        server.shutdown()


@pytest.mark.parametrize("form", ["langfuse", "phoenix", "otel"])
def test_the_upload_of_the_page_brings_every_score_and_twice_changes_nothing(
    tmp_path: Path, form: str
) -> None:
    ids = [(f"{number:032x}", f"{number:016x}") for number in range(1, 2_100)]
    rows = (
        trace(id=f"kp:trace:{one}", native={"system": "otlp", "root": root}) for one, root in ids
    )
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows)
    run = config(tmp_path, tmp_path / "archive", embedder="none")
    rescore_archive(run)
    _, lines = sent(run, form, tmp_path)
    [upload] = [
        x.text
        for x in blocks(PAGE)
        if "curl" in x.text and f"{form}.jsonl" in x.text.split("\n")[0]
    ]
    with doubles() as (url, there):
        names = ("LANGFUSE_BASE_URL", "PHOENIX_BASE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT")
        keys = {"LANGFUSE_PUBLIC_KEY": "public", "LANGFUSE_SECRET_KEY": "secret"}
        environment = {**os.environ, **keys, "PHOENIX_API_KEY": "key", **dict.fromkeys(names, url)}
        shell = ["bash", "-euo", "pipefail", "-c", upload]
        subprocess.run(shell, cwd=tmp_path, env=environment, check=True)
        kept = dict(there[form].kept)
        assert len(kept) == len(lines) == len(ids)
        subprocess.run(shell, cwd=tmp_path, env=environment, check=True)
        assert there[form].kept == kept
        assert sum(len(double.kept) for double in there.values()) == len(ids)
