"""Scores to tables, and which version of them is published."""
