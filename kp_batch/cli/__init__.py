"""The command line: arguments in, tables and messages out. Heavy imports stand where they work.

The child process imports this package, too, and none of its commands.
"""

from importlib import import_module

_COMMANDS = (  # modules, in the order of their commands
    *("run", "query", "questions", "explaining", "sweeping"),
    *("traces", "maintenance", "importing", "exporting", "schema"),
)


def main() -> None:
    """Run the command line and leave with its exit status."""
    from kp_batch.cli.group import main as begin

    for name in _COMMANDS:
        import_module(f"kp_batch.cli.{name}")  # it adds its commands to the group
    begin()
