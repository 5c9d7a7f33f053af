"""Files to traces: what there is, what it says, and what of it can be scored."""
