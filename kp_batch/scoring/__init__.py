"""From traces to facts, and from facts and novelty to the score."""
