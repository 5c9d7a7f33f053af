"""Where a warehouse stands: in a folder, or in a bucket, of which a folder here is the copy."""

import os
from hashlib import sha256
from os import PathLike
from pathlib import Path

from kp_batch.errors import WarehouseError
from kp_batch.files import cache_folder
from kp_batch.storage.urls import check_url, is_url, local_name

# By what a bucket is told from one of the same name in another place.
# Without gs: obstore makes its conditions of generations, which lists lack.
_BUCKETS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": (
        *("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR"),
        *("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    ),
}
_SLASH = ","  # in the name of a copy's folder: one copy must not stand in another


def folder_of(name: str | PathLike[str]) -> str | PathLike[str]:
    """The folder of a warehouse that is named by its URL; any other name is that of a folder.

    Raises:
        KpBatchError: the URL names no bucket, holds a secret, or cannot be that of a warehouse.
    """
    url = str(name).rstrip("/")
    if not is_url(url):
        local_name(url)
        return name
    check_url(url)
    scheme, _, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    if scheme not in _BUCKETS or _SLASH in path:
        possible = ", ".join(f"{each}://" for each in _BUCKETS)
        raise WarehouseError(
            f"neither a warehouse nor an imported archive can stand at {url!r}: name a folder, or "
            f"a URL of {possible} without {_SLASH!r} in its path"
        )
    return _copies() / _store(scheme) / bucket / (_SLASH + path.replace("/", _SLASH))


def url_of(folder: Path) -> str | None:
    """The URL of a bucket's warehouse whose copy is in that folder; None if it is none."""
    try:
        store, bucket, path = folder.absolute().relative_to(_copies()).parts
    except (ValueError, RuntimeError):  # RuntimeError: the user has no home
        return None
    scheme = store.partition("-")[0]
    if scheme not in _BUCKETS or store != _store(scheme):  # of a place that is not asked now
        return None
    return f"{scheme}://{bucket}{path.replace(_SLASH, '/')}".rstrip("/")


def object_of(file: Path) -> tuple[str, str] | None:
    """The warehouse's URL, and the name below it, of the object that a file is the copy of.

    None if the file is in no working copy of a bucket.
    """
    for folder in file.parents:
        if url := url_of(folder):
            return url, file.relative_to(folder).as_posix()
    return None


def make_folder_of(warehouse: Path) -> None:
    """Make the folder of a warehouse where it is missing; copies of buckets are the user's alone.

    Raises:
        OSError: it cannot be made.
    """
    if url_of(warehouse):
        _copies().mkdir(0o700, parents=True, exist_ok=True)
    warehouse.mkdir(parents=True, exist_ok=True)


def shown(warehouse: Path) -> str:
    """A warehouse as its user names it."""
    return url_of(warehouse) or str(warehouse)


def _store(scheme: str) -> str:
    """The name of the folder for all buckets of the account, or the endpoint, that is set."""
    places = [os.environ.get(name, "").rstrip("/") for name in _BUCKETS[scheme]]
    digest = sha256("\0".join(places).encode()).hexdigest()[:12]
    return f"{scheme}-{digest}" if any(places) else scheme


def _copies() -> Path:
    return cache_folder().absolute() / "warehouses"
