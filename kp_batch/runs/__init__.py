"""A run: its settings, the tables that it builds upon, and its limits."""
