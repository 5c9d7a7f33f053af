"""A real S3 server on loopback, and the machines whose warehouse is there."""

import logging
import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.runs.run import effective_config
from kp_batch.storage import store as storage
from kp_batch.storage.store import Store, store_at
from kp_batch.warehouse.bucket.location import folder_of
from kp_batch.warehouse.bucket.mirror import refresh
from kp_batch.warehouse.publication import writing
from kp_batch.warehouse.reader import connect


@contextmanager
def s3_server() -> Generator[str]:
    """Serve S3 to this process and those that it starts; gives the server's address."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # Where servers are refused, this is: a refusal in the server's thread is waited for, for ever.
    sys.audit("socket.bind", None, ("127.0.0.1", 0))
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


@contextmanager
def counted_reads() -> Generator[list[int]]:
    """The bytes of each piece that this process reads from stores."""
    sizes: list[int] = []

    def count(piece: bytes) -> bytes:
        sizes.append(len(piece))
        return piece

    beginning, pieces, read = Store.beginning, Store.pieces, Store.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "beginning", lambda *args: count(beginning(*args)))
        patch.setattr(Store, "pieces", lambda *args: map(count, pieces(*args)))
        patch.setattr(Store, "read", lambda *args: (count((answer := read(*args))[0]), answer[1]))
        yield sizes


@contextmanager
def silent_server() -> Generator[list[socket.socket]]:
    """A server that takes each connection and never answers; gives those that it has taken."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as patch:
        port = server.getsockname()[1]
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        patch.setattr(storage, "READ_TIMEOUT_S", 1)

        def take() -> None:
            with suppress(OSError):  # it is closed
                while True:
                    taken.append(server.accept()[0])

        thread = Thread(target=take, daemon=True)
        thread.start()
        store_at.cache_clear()
        yield taken
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    store_at.cache_clear()
    for connection in taken:
        connection.close()


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


@dataclass
class Machine:
    """A machine with a cache folder of its own."""

    cache: Path
    url: str  # of the warehouse, or its folder

    @contextmanager
    def here(self) -> Generator[Path]:
        """Be on this machine; gives the folder of its copy."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(self.cache))
            yield Path(folder_of(self.url))

    def run(self, archive: Path | str, **settings: object) -> str | None:
        with self.here() as folder, writing(folder, wait=False):
            own = {"embedder": "hashing", **settings}
            config = RescoreConfig.model_validate(
                {"archive": (str(archive),), "warehouse": self.url, **own}
            )
            return rescore_archive(effective_config(config)).run_id

    def ask(self, query: str) -> list[tuple[object, ...]]:
        with self.here() as folder:
            refresh(folder)
            with connect(folder) as connection:
                return connection.execute(query).fetchall()
