#!/usr/bin/env bash
# Breaks servers, networks and processes at random while clients take locks on five servers, and then while workers run tasks on a Redis
# behind Sentinel, judges what came of it, and writes docs/reliability.md: scripts/chaos.sh, with FOR (10m), EVERY (450ms) and SEED (1), and
# for the tasks TASKS (200000), TASKS_FOR (4m) and TASKS_EVERY (1s). The controls of each part take half as long again. PARTS (locks tasks)
# chooses.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

{ have redis-server && { have cc || have gcc; }; } || scripts/test-deps.sh
export REDISTEST_REQUIRE=1
for part in ${PARTS:-locks tasks}; do
  case $part in
  locks)
    go test -C internal/verify/chaos -count=1 -v -timeout 120m -run '^TestLocksUnderChaos$' . \
      -for "${FOR:-10m}" -every "${EVERY:-450ms}" -seed "${SEED:-1}" -long -report "$PWD/docs/reliability.md"
    ;;
  tasks)
    go test -C internal/verify/chaos -count=1 -v -timeout 120m -run '^TestTasksUnderChaos$' ./tasks \
      -tasks "${TASKS:-200000}" -for "${TASKS_FOR:-4m}" -every "${TASKS_EVERY:-1s}" -seed "${SEED:-1}" -long -report "$PWD/docs/reliability.md"
    ;;
  *) fail "there is no part $part" ;;
  esac
done
