#!/usr/bin/env bash
# Measures railtoken against others: scripts/bench.sh [flags of the program]
# Without flags it writes docs/benchmarks.md, its figures (docs/benchmarks.json) and its plots, which takes about an hour; with
# flags it prints tables. "-run REGEXP -into docs/benchmarks.json -out docs" measures some tables again and keeps the others. -check makes the
# exit status 3 when a target is missed. ORDERS names a CSV file with real orders. It runs its own servers; nothing else should run meanwhile.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

if ! have redis-server; then
  scripts/test-deps.sh
elif ! have etcd || ! has_postgres; then
  scripts/test-deps.sh || say "the rows of the servers that are missing are left out"
fi
mkdir -p .bin
go build -o .bin/bench ./bench/cmd/bench
args=(-orders "${ORDERS:-}")
(($# > 0)) || args+=(-out docs)
exec .bin/bench "${args[@]}" "$@"
