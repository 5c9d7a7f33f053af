"""Reads what is new in the archive: files to staged facts and texts."""
