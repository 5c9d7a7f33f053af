"""What the whole suite says at its end."""

import pytest

from tests.browsing import CHROMIUM


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if CHROMIUM is None:
        terminalreporter.write_sep("!", "NO CHROMIUM FOUND", red=True, bold=True)
        terminalreporter.write_line("The report was not looked at in a browser: install Chromium")
        terminalreporter.write_line(
            "(on Debian: apt-get install chromium) and run the tests again."
        )
