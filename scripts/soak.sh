#!/usr/bin/env bash
# Lets worker processes do many tasks on shared keys while one after another is killed, and checks that each task was done
# once and that nobody waits at the end: scripts/soak.sh, with TASKS (100000), KEYS (1000), KILLS (60s), EVERY (2s) and
# SEED (1). FLEET is a test binary of an earlier version, which every other worker runs. MODES (killed) is a pattern of soaks:
#   recorded       the keys of the tasks are recorded, so that locks are fetched with them
#   mixed          the same beside workers that take locks by calls of their own
#   apart          all workers take locks by calls of their own, as if these were on other servers
#   FIFO, StrictFIFO   the tasks of each key run in the order in which they were enqueued
#   unknown-fetch, unknown-acks   with an asynq whose scripts are not known
#   without-keys, without-keys-in-order, without-waiters   while keys are removed; these take up to ten minutes more
# It runs its own redis-servers and takes four to six minutes: asynq brings the tasks of a killed process back after 60 to
# 120 s.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || scripts/test-deps.sh
export REDISTEST_REQUIRE=1
go test -count=1 -v -timeout 30m -run "^TestASoakOfKilledWorkers/^(${MODES:-killed})\$" ./internal/verify/e2e \
  -tasks "${TASKS:-100000}" -keys "${KEYS:-1000}" -kills "${KILLS:-60s}" -every "${EVERY:-2s}" -seed "${SEED:-1}" -fleet "${FLEET:-}" -wait
