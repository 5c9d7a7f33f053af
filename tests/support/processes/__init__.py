"""Starts what runs beside a test: the command, a server of Prefect, a bucket, a browser.

`commands.invoke` runs the command without a process. Fixtures in `tests/conftest.py` start the
servers: `bucket`, `s3` and `prefect`.
"""
