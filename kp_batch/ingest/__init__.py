"""Reads the archive's new files into staged facts and texts."""
