"""The command line: arguments in, tables and messages out. Heavy imports stand where they work.

The child process imports this package, too, and none of the commands.
"""


def main() -> None:
    """Run the command line and leave with its exit status."""
    from kp_batch.cli import maintenance, query, run, traces  # noqa: F401 (they add the commands)
    from kp_batch.cli.group import main as begin

    begin()
