#!/usr/bin/env bash
# Breaks servers, networks and clients at random while clients take locks on five servers, judges what they have seen, and writes
# docs/reliability.md: scripts/chaos.sh, with FOR (10m), EVERY (450ms) and SEED (1). The controls take half as long again.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

{ have redis-server && { have cc || have gcc; }; } || scripts/test-deps.sh
export REDISTEST_REQUIRE=1
go test -C internal/verify/chaos -count=1 -v -timeout 120m -run '^TestLocksUnderChaos$' . \
  -for "${FOR:-10m}" -every "${EVERY:-450ms}" -seed "${SEED:-1}" -long -report "$PWD/docs/reliability.md"
