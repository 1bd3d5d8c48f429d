#!/usr/bin/env bash
# Moves many tasks into the lanes of a Redis Cluster while two servers work, and checks that each runs once, and those of a sequence in
# order: scripts/move.sh, with TASKS (100000). A fifth of them waits for keys. It runs its own redis-servers.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || scripts/test-deps.sh
export REDISTEST_REQUIRE=1
exec go test -count=1 -v -timeout 60m -run '^TestManyTasksMove' ./internal/lanemove -many "${TASKS:-100000}"
