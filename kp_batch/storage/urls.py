"""URLs of buckets, and of files on the web."""

from urllib.parse import urlsplit

from kp_batch.errors import KpBatchError

SCHEMES = ("s3", "gs", "az", "https", "http")
_FORM = "write it as in s3://BUCKET/PATH"
_DATABASES = ("postgresql", "postgres")
_EXPORT = "; to import a registry's database, export it with psql: see docs/how-to/import.md"


def is_url(name: str) -> bool:
    """Whether a name is the URL of an object store, not of a local file."""
    return name.partition("://")[0] in SCHEMES and "://" in name


def local_name(name: str) -> str:
    """The name of a local file, without `file://`.

    Raises:
        KpBatchError: it is a URL of another scheme. The message contains only the scheme, because
            the rest may contain a password.
    """
    local = name.removeprefix("file://")
    scheme, is_other, _ = local.partition("://")
    if is_other:
        known = ", ".join(f"{allowed}://" for allowed in SCHEMES)
        export = _EXPORT if scheme.lower() in _DATABASES else ""
        raise KpBatchError(
            f"URLs of {scheme}:// are not supported; name a folder, or one of {known}{export}"
        )
    return local


def is_web(url: str) -> bool:
    """Whether a URL is of a web server, which cannot list files."""
    return url.startswith(("http://", "https://"))


def check_url(url: str) -> None:
    """Refuse a URL that contains a secret, or names no bucket.

    Raises:
        KpBatchError: the URL has credentials or a query (the message leaves them out), names no
            bucket, or cannot be parsed.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        if "@" in url:
            raise _with_secret(url.partition("://")[0], "") from None
        raise KpBatchError(f"the URL {url!r} cannot be parsed: {error}; {_FORM}") from error
    # In a bucket, ? and # are ordinary characters of a name.
    if "@" in parts.netloc or (is_web(url) and (parts.query or parts.fragment)):
        raise _with_secret(parts.scheme, parts.hostname or "")
    if not parts.netloc:
        raise KpBatchError(f"the URL {url!r} names no bucket; {_FORM}")


def _with_secret(scheme: str, host: str) -> KpBatchError:
    return KpBatchError(
        f"the URL of {scheme}://{host} has credentials or a query, which would appear in tables "
        "and logs; set them in the environment variables of that store"
    )
