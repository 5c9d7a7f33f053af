"""Archives of other systems' traces: reads what is new, keeps its records, writes its days."""
