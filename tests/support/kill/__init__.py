"""Kills runs, imports and removals, and looks at what they leave.

`python -m tests.support.kill.runs` kills many at random moments, as `make torture` does. `removal`
kills a removal at one place, and `retries` lets a step fail once.
"""
