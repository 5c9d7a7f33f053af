"""Scores to tables, and what of them is published."""
