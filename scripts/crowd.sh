#!/usr/bin/env bash
# Has many tasks wait for one held key, with all defaults, and checks that each runs once after the release: scripts/crowd.sh, with
# CROWD (100000). Then it measures what a park costs with 1 and with 100 000 waiting. It runs its own redis-servers.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || scripts/test-deps.sh
export REDISTEST_REQUIRE=1
go test -count=1 -v -timeout 60m -run '^TestACrowdOnOneHeldKey' ./internal/verify/e2e -crowd "${CROWD:-100000}"
exec go test -count=1 -run '^$' -bench '^BenchmarkPark$' ./internal/line
