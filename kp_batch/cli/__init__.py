"""The command line: arguments in, tables and messages out. Heavy imports stand where they work."""

from kp_batch.cli.main import main

__all__ = ["main"]
