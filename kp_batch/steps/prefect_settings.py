"""Reads whether Prefect is configured, and quiets it, without importing Prefect."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def configured_api(environment: Mapping[str, str]) -> str | None:
    """The URL of the Prefect server that is configured; None if none is.

    PREFECT_API_URL names it, or the active profile in Prefect's profiles.toml. Prefect itself takes
    longer to import than a small run takes.
    """
    if url := environment.get("PREFECT_API_URL"):
        return url
    try:
        home = Path(environment.get("PREFECT_HOME") or Path.home() / ".prefect")
        path = Path(environment.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
        content: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        active = environment.get("PREFECT_PROFILE") or content["active"]
        return content["profiles"][active].get("PREFECT_API_URL")
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        return None  # no such file, or one with a fault, which Prefect reports where it is used


def prepare_prefect(home: Path) -> None:
    """Set Prefect up before it is imported; the user's environment wins.

    It prints nothing, though it logs all messages, and has no outside connections. Where no server
    is configured, its temporary one is used, with a database in the folder `home`, which is made.
    """
    settings = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }
    if configured_api(os.environ) is None:
        home.mkdir(parents=True, exist_ok=True)  # the server does not start without
        settings |= {
            "PREFECT_HOME": str(home),
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        }
        if "PREFECT_HOME" not in os.environ:
            # A warehouse from somebody else may hold a profile that names a server of theirs.
            settings["PREFECT_PROFILES_PATH"] = os.devnull
    for name, value in settings.items():
        os.environ.setdefault(name, value)
