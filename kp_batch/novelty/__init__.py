"""Vectors in time to novelty."""
