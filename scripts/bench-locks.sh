#!/usr/bin/env bash
# Measures our locks against those of other libraries: scripts/bench-locks.sh [-quick] [-run regexp] [-json file]
# It runs its own redis-servers and takes five to six minutes; nothing else should run meanwhile.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || scripts/test-deps.sh
mkdir -p .bin
go build -o .bin/locks ./bench/cmd/locks
exec .bin/locks "$@"
