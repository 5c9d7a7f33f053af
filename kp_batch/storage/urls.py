"""URLs of buckets and of files on the web."""

from urllib.parse import urlsplit

from kp_batch.errors import KpBatchError

SCHEMES = ("s3", "gs", "az", "https", "http")


def is_url(name: str) -> bool:
    """Whether a name is of an object store, not of this machine's disk."""
    return name.partition("://")[0] in SCHEMES and "://" in name


def is_web(url: str) -> bool:
    """Whether a URL is of a web server, which lists nothing."""
    return url.startswith(("http://", "https://"))


def check_url(url: str) -> None:
    """Refuse a URL that holds a secret, or of which a part would be taken for something else.

    Raises:
        KpBatchError: it has credentials, or a query, or no bucket.
    """
    found = urlsplit(url)
    # In a bucket, ? and # are letters of a name.
    if "@" in found.netloc or (is_web(url) and (found.query or found.fragment)):
        raise KpBatchError(
            f"the URL of {found.scheme}://{found.hostname or ''} has credentials or a query, which "
            "would stand in tables and logs; give them in the environment variables of that store"
        )
    if not found.netloc:
        raise KpBatchError(f"the URL {url!r} names no bucket")
