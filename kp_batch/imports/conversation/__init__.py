"""What agents say and do, in whatever form it is told: messages, payloads, spans, transcripts."""
