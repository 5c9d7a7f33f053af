"""Messages, spans, payloads, sessions and transcripts, which the formats share.

The dataclasses are not frozen: there are some for every span and message, and frozen ones take
three times as long to make.
"""
