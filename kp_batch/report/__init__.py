"""The report of a warehouse: its sentences and charts, as one page and as markdown."""
