"""Where Prefect keeps its own files, and how quiet it is."""

import os
from pathlib import Path

from kp_batch.warehouse.layout import Layout


def prepare_prefect(warehouse: Path) -> None:
    """Set Prefect up before it is imported; what the user's environment sets wins.

    It is quiet, without outside connections, and keeps its files inside the warehouse unless
    PREFECT_API_URL names a server.
    """
    settings = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }
    if "PREFECT_API_URL" not in os.environ:
        home = Layout(warehouse.absolute()).prefect
        home.mkdir(parents=True, exist_ok=True)  # its server does not start without
        settings |= {
            "PREFECT_HOME": str(home),
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
