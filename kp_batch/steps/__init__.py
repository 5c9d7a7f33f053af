"""The steps of a run, timed and retried; their parts, in threads or by Ray."""
