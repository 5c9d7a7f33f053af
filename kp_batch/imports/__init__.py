"""Archives of other systems' traces: reads new files, keeps their records, writes the days."""
