"""Reads what kp_batch left: tables by a query, files of a folder, HTML, charts, printed JSON.

`queries.ask` asks a warehouse. `folders` lists a folder, and keeps one that takes long to make.
"""
