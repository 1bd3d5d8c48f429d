#!/usr/bin/env bash
# Runs the benchmarks of packages, by default those of all workspace modules: scripts/microbench.sh [pattern...]
# BENCH (default .) chooses them, COUNT (default 1) repeats them, BENCHTIME (default 1s) is the time of each.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

find_packages "$@"
exec go test -run '^$' -bench "${BENCH:-.}" -benchmem -count "${COUNT:-1}" -benchtime "${BENCHTIME:-1s}" "${packages[@]}"
