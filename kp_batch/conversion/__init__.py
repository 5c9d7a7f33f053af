"""Other systems' traces: read as they record them, and turned into `schemas.TRACE`."""
