"""The methods of a `Warehouse`, by what they are about; each calls what a command calls."""
