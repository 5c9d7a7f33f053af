"""What agents say and do, in whatever form it is told: messages, payloads, spans, transcripts.

Its dataclasses are not frozen, which would let them take three times as long to make: there are
some for every span and message.
"""
