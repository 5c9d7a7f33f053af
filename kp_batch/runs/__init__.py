"""A run: its settings and files, why it has work, what its audits found, and its record."""
