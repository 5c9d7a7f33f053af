"""Object stores, by their URLs: all access to buckets is in this package.

Credentials and endpoints come from where each provider's own tools look for them, never from a URL:
so no table, log or message has them.
"""
