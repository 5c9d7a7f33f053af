"""A bucket in memory, which is filled and emptied at once, behind the same client as real ones."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from obstore import store as stores
from obstore.store import MemoryStore

from kp_batch.storage.store import store_at


@dataclass
class MemoryBucket:
    """What is at one URL."""

    url: str
    store: MemoryStore = field(default_factory=MemoryStore)

    def open(self, url: str, **_: Any) -> MemoryStore:
        """Return the store of a URL, as obstore does."""
        assert url == self.url
        return self.store

    def contents(self) -> dict[str, bytes]:
        """Return the objects by their paths."""
        store = store_at(self.url)
        return {each.path: store.read(each.path)[0] for each in store.objects()}

    def fill(self, contents: Mapping[str, bytes]) -> None:
        """Replace all objects."""
        self.store = MemoryStore()
        store_at.cache_clear()
        for path, content in contents.items():
            store_at(self.url).write(path, content)


@contextmanager
def bucket_in_memory() -> Generator[MemoryBucket]:
    """Make a bucket that this process alone sees."""
    bucket = MemoryBucket("s3://memory/team")
    store_at.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "from_url", bucket.open)
        yield bucket
    store_at.cache_clear()
