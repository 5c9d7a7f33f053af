"""A warehouse in a bucket, and its local copy."""
