"""Scored traces out of a warehouse: as an archive, as training data, or as scores alone."""
