"""The steps of a run, timed and retried, as Prefect tasks; their parts, in threads or by Ray."""
