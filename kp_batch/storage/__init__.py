"""Object stores, by their URLs: the one room that speaks with a bucket.

Credentials and endpoints come from where each provider's own tools look, never from a URL: so no
table, log or message has them.
"""
