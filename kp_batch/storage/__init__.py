"""All access to buckets: object stores, by their URLs.

Credentials and endpoints come from where each provider's own tools look for them, never from a URL.
So no table, log or message contains them.
"""
