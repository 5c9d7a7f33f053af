"""Tells the errors of stores as the system's own, in one line."""

import errno
import re
from collections.abc import Generator
from contextlib import contextmanager

from kp_batch.errors import KpBatchError
from kp_batch.text import one_line

# What is not over soon, though obstore has no kind of error for it.
_LASTING = ("NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "InvalidAccessKeyId")
_METADATA = "169.254.169.254"  # where a cloud's machine is told its own credentials


class ConflictError(KpBatchError):
    """An object is not as the condition of a write says: another writer was there."""


@contextmanager
def told(where: str) -> Generator[None]:
    """Tell what happens to a URL as an OSError, or as a ConflictError.

    The store's own error is left behind: its text may quote the request, with a token.
    """
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )

    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise ConflictError(f"{where} was changed by another writer") from None
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", where) from None
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        reason = f"access is denied ({_reason(error)}); look at the credentials and rights"
        raise PermissionError(errno.EACCES, reason, where) from None
    except BaseError as error:
        reason = _reason(error)
        if _METADATA in str(error):  # asked where no environment variable said who we are
            reason = "no credentials were found; set those of that store, or a profile"
            raise PermissionError(errno.EACCES, reason, where) from None
        if any(sign in str(error) for sign in _LASTING):
            reason += "; look at the URL and the credentials"
            raise FileNotFoundError(errno.ENOENT, reason, where) from None
        raise OSError(errno.EIO, reason, where) from None


def _reason(error: BaseException) -> str:
    """What a store says, without its XML, its own names for things, and any query of a URL."""
    text = re.sub(r"\?[^\s:)\"]*", "", str(error).partition("\nDebug")[0])
    code = re.search(r"<Code>(\w+)</Code>.*?<Message>(.*?)</Message>", text, re.DOTALL)
    told = f"{code[1]}: {code[2]}" if code else text.partition(" source: ")[0]
    return one_line(told)[:300]
