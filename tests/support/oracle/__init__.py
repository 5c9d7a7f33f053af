"""What commands and questions should answer, by the documentation alone.

Plain loops over rows: nothing here is the engine's, nor that of a library for tables.
"""
