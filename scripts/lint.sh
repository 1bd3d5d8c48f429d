#!/usr/bin/env bash
# Checks packages, by default those of all workspace modules: scripts/lint.sh [pattern...]
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

find_packages "$@"
gofumpt=$(scripts/tool.sh gofumpt)
golangci=$(scripts/tool.sh golangci-lint)

say "gofumpt"
# Other scripts may have folders in .bin that come and go.
mapfile -t files < <(find "${packages[@]%/...}" -name .bin -prune -o -name '*.go' -print | sort -u)
unformatted=$("$gofumpt" -l "${files[@]}")
[[ -z $unformatted ]] || fail "not formatted, \"make fmt\" does it:"$'\n'"$unformatted"

compile_alike
# With the tests of docker, which need an engine.
say "golangci-lint, with go vet"
"$golangci" run --allow-parallel-runners --build-tags engine "${packages[@]}"

say "go fix"
# Without what golangci-lint checks as well: it would look at everything that the packages import.
go fix -inline=false -tags engine -diff "${packages[@]}" || fail "go fix has something to modernize, \"make fmt\" does it"

if have shellcheck; then
  say "shellcheck"
  shellcheck -x scripts/*.sh .ci/run
fi
