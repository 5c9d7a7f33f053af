"""Scores to tables, which version of them is published, and the records of runs."""
