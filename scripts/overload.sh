#!/usr/bin/env bash
# Floods locks on one Redis and on five with 512 and then 2 048 callers, stops the servers for 300 ms in the middle, and prints how many
# pairs of acquire and release were made in each second: scripts/overload.sh, with FLOOD (20s), HELD (100000) leases of HELDTTL (30s)
# that are held during the second flood, and RUN to choose one of single and redlock. It fails when a second goes by without progress, when
# 2 048 callers get less than half of what 512 get, or when a lease is lost. It needs a calm machine and takes about three minutes.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || scripts/test-deps.sh
export REDISTEST_REQUIRE=1
exec go test -count=1 -v -timeout 15m -run "^TestOverloadLosesNoLease/${RUN:-}" ./locking \
  -flood "${FLOOD:-20s}" -held "${HELD:-100000}" -heldttl "${HELDTTL:-30s}"
