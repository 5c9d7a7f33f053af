"""Where the steps of a run are called."""
