"""Carries a plan out: texts to vectors, replay, days to tables, publication."""
