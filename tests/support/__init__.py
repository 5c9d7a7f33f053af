"""What several tests need: archives, servers, browsers, readers of the documentation."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
