"""Texts to vectors, each computed once."""
