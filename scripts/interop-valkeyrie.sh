#!/usr/bin/env bash
# Tests our lockers with the lock suite of valkeyrie, with the race detector: scripts/interop-valkeyrie.sh [go test flag...]
# It is apart from scripts/interop.sh because not every module proxy has that module. It needs redis-server.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || scripts/test-deps.sh
cd interop/valkeyrie
export GOWORK=off REDISTEST_REQUIRE=1 CGO_ENABLED=1
go mod download github.com/kvtools/valkeyrie ||
  fail "the module proxy in use does not have github.com/kvtools/valkeyrie: fetch it from its repository with GOPRIVATE=github.com/kvtools/valkeyrie"
go test -race -count=1 -timeout 10m "$@" ./...
