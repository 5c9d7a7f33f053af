"""Reads other systems' traces as they record them, and turns them into `schemas.TRACE`."""
