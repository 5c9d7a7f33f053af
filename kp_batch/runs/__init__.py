"""A run: its settings and files, the reasons for its work, its audits, and its record."""
