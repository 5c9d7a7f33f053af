"""Makes files of the formats that can be imported.

A module named as a format has its rows. `agent_runs` has runs of agents in every system of spans,
`agent_talks` the same in formats of conversations, and `kits` a kit for each form of each format.
"""
