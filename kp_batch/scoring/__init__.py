"""Traces to facts, and facts and novelty to the score."""
