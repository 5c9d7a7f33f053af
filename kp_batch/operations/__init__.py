"""Works on a warehouse besides a run: looking back and upkeep."""
