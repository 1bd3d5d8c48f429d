#!/usr/bin/env bash
# Tests packages, by default those of all workspace modules: scripts/test.sh [pattern...]
# RACE=1 adds the race detector, which makes it take about twice as long.
# No test that needs redis-server is left out: it is installed first. The output ends with go test's own.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

scripts/test-deps.sh
find_packages "$@"
export REDISTEST_REQUIRE=1
# The packages that take longest begin first, so that they are not what is waited for at the end.
(($# > 0)) || packages=(./locking ./middleware ./internal/line "${packages[@]}")
# Tests wait for servers and clocks more than they compute.
parallel=$(($(getconf _NPROCESSORS_ONLN) * 3 / 2))
if [[ ${RACE:-} ]]; then
  # With the race detector, it is the processors that are waited for.
  parallel=$(getconf _NPROCESSORS_ONLN)
fi
compile_alike # the programs that tests compile, too
# go test's own 10 minutes for a package are too few on a busy machine. make lint vets, and more than go test would.
exec go test -p "$parallel" -vet=off -timeout 30m -count=1 "${packages[@]}"
