#!/usr/bin/env bash
# Makes format-N.tar.gz, the warehouses of a format after each night: make.sh N KP_BATCH...
#
# KP_BATCH is the command of a kp-batch that writes format N. Each of three nights adds a file. After
# the second one a trace is forgotten. In the third one the first file is gone, and a run fails
# before one succeeds. A rollback undoes the last run.
set -eu
format=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
work=/tmp/kept # the tables name the archive's files by their absolute paths
rm -rf "$work"
mkdir -p "$work/archive"
cd "$work"
kp() { "$@" --warehouse warehouse; }
after() {
  mkdir -p "states/$1"
  cp -a archive warehouse "states/$1"
  # Each is made from the tables, and is larger than all of them.
  rm -rf "states/$1/warehouse/"{kp.duckdb,report.html,prefect}
}
trace() {
  printf '{"id": "%s", "metadata": {"created_at": "%s", "task_domain": "%s", "success": true}, ' "$1" "$2" "$3"
  printf '"task": {"objective": "%s"}, "steps": [{"type": "thought", "content": "%s"}, ' "$4" "$4"
  printf '{"type": "tool_call", "content": "open the file", "tool": {"name": "edit"}}], "outcome": {"confidence": 0.8}}\n'
}
cat >weights.toml <<'TOML'
[[profiles.code]]
complexity = 0.25
novelty = 0.25
tool_diversity = 0.25
outcome_confidence = 0.25
[[profiles.code]]
from = 2026-01-06
complexity = 0.4
novelty = 0.4
tool_diversity = 0.1
outcome_confidence = 0.1
TOML
cat >audits.toml <<'TOML'
[audits.no_legal]
sql = "FROM scores WHERE task_domain = 'legal'"
severity = "warn"
TOML
{
  trace a 2026-01-05T08:00:00Z code "fix the import"
  trace b 2026-01-05T09:00:00Z code "fix the export"
  echo '{"id": "no steps"}'
} >archive/1.jsonl
kp "$@" run archive --embedder hashing --cache-size 2 --profiles weights.toml --audits audits.toml \
  --max-reject-share 1 --note "the first night" --quiet
after 1
trace c 2026-01-06T08:00:00Z code "fix the import" >archive/2.jsonl
kp "$@" run archive --max-reject-share 1 --quiet
after 2
kp "$@" forget b
after 3
trace d 2026-01-07T08:00:00Z legal "read the contract" >archive/3.jsonl
rm archive/1.jsonl
kp "$@" run archive --max-reject-share 1 --max-gone 0 --quiet && exit 1
kp "$@" run archive --max-reject-share 1 --threshold 0.5 --no-trace-text --quiet ||
  kp "$@" run archive --max-reject-share 1 --threshold 0.5 --no-text --quiet
after 4
kp "$@" rollback previous
after 5
tar -C states -czf "$here/format-$format.tar.gz" --owner=0 --group=0 .
