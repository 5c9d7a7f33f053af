"""The command line: arguments in, tables and messages out. Heavy imports stand where they work."""

from kp_batch.cli import maintenance, query, run, traces
from kp_batch.cli.group import main
from kp_batch.cli.run import DEMO_QUERIES

__all__ = ["DEMO_QUERIES", "main", "maintenance", "query", "run", "traces"]
