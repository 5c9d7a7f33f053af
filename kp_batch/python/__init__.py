"""kp_batch in Python and in notebooks: what `import kp_batch` has, over the same operations."""
