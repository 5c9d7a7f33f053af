"""Archives of other systems' traces: what is new is read, its records kept, its days written."""
