#!/usr/bin/env bash
# Runs every fuzz target of the tree for FUZZTIME (default 30s), one after another.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

fuzztime=${FUZZTIME:-30s}
targets=$(find . -name '*_test.go' -not -path '*/.*/*' -not -path '*/testdata/*' \
  -exec grep -HoE '^func Fuzz[A-Za-z0-9_]*\(' {} + | sort -u)
[[ -n $targets ]] || fail "the tree has no fuzz targets"

while IFS=: read -r file func; do
  name=${func#func }
  name=${name%(}
  say "$(dirname "$file") $name for $fuzztime"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" "$(dirname "$file")"
done <<<"$targets"
