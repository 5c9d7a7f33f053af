"""From vectors in time to novelty."""
