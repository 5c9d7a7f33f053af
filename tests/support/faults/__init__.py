"""Faults on purpose: calls to the disk, or to a bucket, that fail."""
