"""A warehouse in a bucket, which is worked on through a copy here."""
