"""From texts to vectors, each computed once."""
