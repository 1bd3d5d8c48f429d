#!/usr/bin/env bash
# Tests our lockers against suites and programs of others, with the race detector: scripts/interop.sh [go test flag...]
# It needs redis-server, node and npm, and leaves no test out for want of them. The output ends with go test's own.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

# limit runs a command for so long at most, where the system can bound it.
limit() {
  if have timeout; then
    timeout "$@"
  else
    "${@:2}"
  fi
}

missing=()
for tool in redis-server node npm; do
  have "$tool" || missing+=("$tool")
done
if ((${#missing[@]} > 0)); then
  fail "the interop tests need ${missing[*]}. Install what is missing" \
    "(Debian: apt-get install redis-server nodejs npm; Fedora: dnf install redis nodejs npm; Alpine: apk add redis nodejs npm;" \
    "macOS: brew install redis node) and run \"make interop\" again."
fi

cd interop
say "npm ci"
limit 300 npm --prefix node ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 ||
  fail "npm could not install what interop/node/package-lock.json names"

# The module is not part of the workspace: see interop/doc.go.
export GOWORK=off REDISTEST_REQUIRE=1 CGO_ENABLED=1
limit 1200 go test -race -count=1 -timeout 10m "$@" ./...
