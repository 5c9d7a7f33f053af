"""The steps of a run: timed, tried again, as tasks of Prefect; their parts, here or by Ray."""
