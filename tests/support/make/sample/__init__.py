"""Synthetic archives: traces that read like agents' work, in bursts, and bad on request."""

from tests.support.make.sample.archive import write_sample

__all__ = ["write_sample"]
