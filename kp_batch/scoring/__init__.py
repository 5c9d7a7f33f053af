"""Facts and novelty to the score."""
