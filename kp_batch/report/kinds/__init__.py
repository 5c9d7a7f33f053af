"""The kinds of findings, each of one thing that scores tell."""
