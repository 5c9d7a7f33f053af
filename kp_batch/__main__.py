"""`python -m kp_batch`."""

from kp_batch.cli import main

main()
