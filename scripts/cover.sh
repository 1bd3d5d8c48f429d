#!/usr/bin/env bash
# Measures how much of the workspace its tests execute: writes .cover/cover.out and .cover/cover.html, prints the total.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

scripts/test-deps.sh
find_packages "$@"
mkdir -p .cover
list=$(
  IFS=,
  printf '%s' "${packages[*]}"
)
REDISTEST_REQUIRE=1 go test -count=1 -coverprofile .cover/cover.out -coverpkg "$list" "${packages[@]}"
go tool cover -html .cover/cover.out -o .cover/cover.html
go tool cover -func .cover/cover.out | tail -n 1
