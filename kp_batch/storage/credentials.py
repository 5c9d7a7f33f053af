"""How stores are reached, and by whom."""

import os
from typing import Any

from kp_batch.errors import StorageError

# A request may last as long as its bytes keep coming: obstore's own limit is 30 s for all of it.
_PATIENCE = {"timeout": "1h", "read_timeout": "60s"}


def settings_of(url: str) -> dict[str, Any]:
    """How to reach a store, as far as obstore does not take it from the environment itself.

    Raises:
        StorageError: that needs a package that is not installed.
    """
    client: dict[str, Any] = dict(_PATIENCE)
    settings: dict[str, Any] = {"client_options": client}
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    if url.startswith("http://") or plain:
        client["allow_http"] = True
    if url.startswith("s3://") and "AWS_ACCESS_KEY_ID" not in os.environ:
        settings |= _profile()
    return settings


def _profile() -> dict[str, Any]:
    """The credentials of the user's profile or machine, by boto3 where that is installed."""
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        if "AWS_PROFILE" in os.environ:
            raise StorageError("AWS_PROFILE needs boto3: pip install 'kp-batch[s3]'") from error
        return {}
    session = Session()
    if session.get_credentials() is None:
        return {}
    return {"credential_provider": Boto3CredentialProvider(session)}
