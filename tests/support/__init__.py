"""What several tests need, in folders by what it is for; `tests/README.md` says which has what.

What the tests of one file need stands beside that file.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
