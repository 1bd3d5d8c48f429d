#!/usr/bin/env bash
# Measures what workers get done whose tasks want the same keys, with railtoken and without: scripts/bench-tasks.sh [-quick] [-run regexp]
# [-orders file] [-json file]. It runs its own redis-servers and takes half an hour, with -quick ten minutes; nothing else should run meanwhile.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || scripts/test-deps.sh
mkdir -p .bin
go build -o .bin/tasks ./bench/cmd/tasks
exec .bin/tasks "$@"
