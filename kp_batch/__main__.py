"""`python -m kp_batch`."""

import sys

if not sys.flags.safe_path:
    sys.path.pop(0)  # the current folder may hold a polars.py of the user's own

from kp_batch.cli import main

main()
