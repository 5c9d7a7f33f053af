"""Decides what changed and the least work that is enough; writes to staging only."""
