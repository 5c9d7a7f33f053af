"""From files to rows, and which of the rows can be scored."""
