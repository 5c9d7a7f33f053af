"""`python -m kp_batch`."""

import sys

if not sys.flags.safe_path:
    sys.path.pop(0)  # the folder that the user stands in may hold a polars.py of their own

from kp_batch.cli import main

main()
