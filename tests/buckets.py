"""A real S3 server on loopback."""

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kp_batch.storage.store import store_at


@contextmanager
def s3_server() -> Generator[str]:
    """Serve S3 to this process and those that it starts; gives the server's address."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in [each for each in os.environ if each.startswith("AWS_")]:
                patch.delenv(name)
            patch.setenv("AWS_ENDPOINT_URL", address)
            patch.setenv("AWS_REGION", "us-east-1")
            patch.setenv("AWS_ACCESS_KEY_ID", "AKIAKNOWNTOTESTS")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "secret/known+to+tests")
            store_at.cache_clear()
            yield address
    finally:
        store_at.cache_clear()
        server.stop()


def make_bucket(address: str, name: str) -> str:
    """Make a bucket; returns its URL."""
    import boto3

    boto3.client("s3", endpoint_url=address).create_bucket(Bucket=name)
    return f"s3://{name}"


def fill(url: str, folder: Path) -> None:
    """Copy a folder's files into a bucket."""
    store = store_at(url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.write(str(path.relative_to(folder)), path)
