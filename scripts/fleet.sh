#!/usr/bin/env bash
# Runs soaks in which every other worker is of an earlier version: scripts/fleet.sh COMMIT, with MODES (killed|FIFO|StrictFIFO), TASKS,
# KEYS, KILLS, EVERY and SEED as in scripts/soak.sh. Each task must be done once, none overlap, and the order of each key hold.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

(($# == 1)) || fail "say which commit the other workers are of: scripts/fleet.sh COMMIT"
before=$(mktemp -d)
trap 'git worktree remove --force "$before/tree" || true; rm -rf "$before"' EXIT
git worktree add -q --detach "$before/tree" "$1"
go test -C "$before/tree" -c -o "$before/e2e.test" ./internal/verify/e2e
FLEET=$before/e2e.test MODES=${MODES:-killed|FIFO|StrictFIFO} scripts/soak.sh
