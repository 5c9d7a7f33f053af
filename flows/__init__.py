"""Prefect flows, and nothing else."""
