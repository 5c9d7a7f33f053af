"""Places to run the steps of a run, besides this process."""
