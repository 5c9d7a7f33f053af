"""Explains why one published trace has its score."""
