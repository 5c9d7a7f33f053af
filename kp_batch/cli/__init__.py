"""The command line: arguments in, tables and messages out. Heavy imports stand where they work."""

from kp_batch.cli import asking, keeping, rescoring, tracing
from kp_batch.cli.group import main
from kp_batch.cli.rescoring import DEMO_QUERIES

__all__ = ["DEMO_QUERIES", "asking", "keeping", "main", "rescoring", "tracing"]
