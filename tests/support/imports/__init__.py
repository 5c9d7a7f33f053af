"""Imports files of other systems, and reads the traces that come of them.

`drafting` makes the traces of a file without an archive, and `importing` imports into one. `python
-m tests.support.imports.digests` writes down what every fixture comes to.
"""
