"""Makes what tests begin with: traces and their files, runs over them, scores, warehouses.

Begin with `archives` (`trace` and `write_jsonl`) and `runs` (`config`). `publications` publishes
tables without a run, and `planted` draws scores without one. `sample` writes an archive that reads
like agents' work.
"""
