"""Detects changes and plans the least work for them; writes to staging only."""
