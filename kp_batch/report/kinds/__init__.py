"""The kinds of findings, each about one topic."""
