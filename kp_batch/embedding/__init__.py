"""Texts to vectors, each made once."""
