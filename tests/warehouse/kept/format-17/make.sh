#!/usr/bin/env bash
# Makes the warehouse of this folder anew: make.sh KP_BATCH, of a kp_batch whose format is 17.
set -eu
kp() { "$KP" "$@" --warehouse warehouse; }
KP=$1
trace() {
  printf '{"id": "%s", "metadata": {"created_at": "%s", "task_domain": "%s", "success": true}, ' "$1" "$2" "$3"
  printf '"task": {"objective": "%s"}, "steps": [{"type": "thought", "content": "%s"}, ' "$4" "$4"
  printf '{"type": "tool_call", "content": "open the file", "tool": {"name": "edit"}}], "outcome": {"confidence": 0.8}}\n'
}
mkdir archive
printf '[[profiles.code]]\ncomplexity = 0.25\nnovelty = 0.25\ntool_diversity = 0.25\noutcome_confidence = 0.25\n[[profiles.code]]\nfrom = 2026-01-06\ncomplexity = 0.4\nnovelty = 0.4\ntool_diversity = 0.1\noutcome_confidence = 0.1\n' > weights.toml
{ trace a 2026-01-05T08:00:00Z code "fix the import"; trace b 2026-01-05T09:00:00Z code "fix the export"; } > archive/1.jsonl
kp run archive --embedder hashing --cache-size 2 --profiles weights.toml --quiet
trace c 2026-01-06T08:00:00Z code "fix the import" > archive/2.jsonl
kp run archive --quiet
trace d 2026-01-07T08:00:00Z legal "read the contract" > archive/3.jsonl
kp forget b
kp run archive --threshold 0.5 --quiet
kp rollback previous
# Each is made from the tables, and is larger than all of them.
rm -f warehouse/kp.duckdb warehouse/report.html
