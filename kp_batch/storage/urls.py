"""URLs of buckets, of files on the web, and of databases."""

import re
from urllib.parse import unquote, urlsplit

from kp_batch.errors import KpBatchError

SCHEMES = ("s3", "gs", "az", "https", "http")
_FORM = "write it as in s3://BUCKET/PATH"
_DATABASES = ("postgresql://", "postgres://")
_PASSWORD = re.compile(r"pass(?!file\b)\w*=", re.IGNORECASE)  # as one may write libpq's parameter


def is_url(name: str) -> bool:
    """Whether a name is the URL of an object store, not of a local file."""
    return name.partition("://")[0] in SCHEMES and "://" in name


def local_name(name: str) -> str:
    """The name of a local file, without `file://`.

    Raises:
        KpBatchError: it is a URL of another scheme; the message has only that, since the rest may
            hold a password.
    """
    local = name.removeprefix("file://")
    scheme, is_other, _ = local.partition("://")
    if is_other:
        known = ", ".join(f"{allowed}://" for allowed in SCHEMES)
        raise KpBatchError(
            f"a URL of {scheme}:// is neither read nor written; name a folder, or one of {known}"
        )
    return local


def is_web(url: str) -> bool:
    """Whether a URL is of a web server, which lists nothing."""
    return url.startswith(("http://", "https://"))


def is_database(name: str) -> bool:
    """Whether a name is the URL of a PostgreSQL database."""
    return name.lower().startswith(_DATABASES)


def check_database(url: str) -> None:
    """Refuse the URL of a database that holds a password.

    Raises:
        KpBatchError: it holds one; the message leaves it out.
    """
    scheme, _, rest = url.partition("://")
    # Up to the last @, since a password may contain any special character of URLs.
    if ":" in rest.rpartition("@")[0] or _PASSWORD.search(unquote(rest)):
        raise KpBatchError(
            f"a URL of {scheme}:// holds a password, which would stand in files and logs; give it "
            "in PGPASSWORD, ~/.pgpass or a service that PGSERVICE names"
        )


def check_url(url: str) -> None:
    """Refuse a URL that holds a secret, or names no bucket.

    Raises:
        KpBatchError: it has credentials or a query, which the message leaves out, names no bucket,
            or cannot be parsed.
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
        f"the URL of {scheme}://{host} has credentials or a query, which would stand in tables and "
        "logs; give them in the environment variables of that store"
    )
