"""Reads the pages of the documentation, runs what they show, and writes the generated parts.

`python -m tests.support.docs.reference` writes parts of `docs/reference`, and `python -m
tests.support.docs.picture` the picture of the front page.
"""
