#!/usr/bin/env bash
# Shows what tasks of many items promise, in full length: scripts/items.sh. 1 500 tasks of 40 items (RUNS) run beside 7 500 audits (AUDITS) of
# the same orders in four worker processes, one of which is killed every 2 s, once with a mark for each effect and once without. Then 1 000
# pairs (PAIRS) of tasks with keys in common, and what a task of items costs and how quickly it goes on.
# It runs its own redis-servers and takes about four minutes.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || scripts/test-deps.sh
export REDISTEST_REQUIRE=1
for mark in mark none; do
  go test -count=1 -v -timeout 30m -run "^TestASoakOfItemsLeavesTheStockExact/^$mark\$" ./internal/verify/e2e \
    -items-runs "${RUNS:-1500}" -items-audits "${AUDITS:-7500}" -items-workers 4 -items-kills 5 -items-every 2s -items-control
done
go test -count=1 -v -timeout 30m ./items -exact -pairs "${PAIRS:-1000}" -rapid.checks "${PAIRS:-1000}"
