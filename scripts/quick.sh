#!/usr/bin/env bash
# Tests what a task passes through: the packages that worker and items are made of, and the documents.
# With -short: what needs several servers, a Cluster, other processes or much time is left to make test. It needs Go and redis-server alone.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || fail "there is no redis-server here: install it (Debian: apt-get install redis-server), or run \"make test\", which does."
mapfile -t packages < <(go list -deps ./worker ./items | grep "^$(go list .)/")
export REDISTEST_REQUIRE=1
# Without -count=1: a package that is as it was when its tests passed is not tested again. Those that take longest come first.
exec go test -p $(($(getconf _NPROCESSORS_ONLN) * 2)) -short -trimpath -vet=off ./attach ./internal/line ./middleware ./locking . "${packages[@]}"
