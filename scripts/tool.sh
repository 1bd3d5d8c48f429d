#!/usr/bin/env bash
# Prints the path of a pinned tool, which it builds first when needed: scripts/tool.sh golangci-lint|gofumpt|benchstat
#
# The versions stand in tools/go.mod. "go tool -modfile" cannot be used in a workspace, and links again for each
# user; a binary in .bin, named after its version and Go's, is built once.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

case ${1:-} in
golangci-lint) module=github.com/golangci/golangci-lint/v2 package=$module/cmd/golangci-lint ;;
gofumpt) module=mvdan.cc/gofumpt package=$module ;;
benchstat) module=golang.org/x/perf package=$module/cmd/benchstat ;;
*) fail "no tool is called '${1:-}'" ;;
esac

# The tools run here, whatever the caller builds for.
unset GOOS GOARCH
export GOWORK=off CGO_ENABLED=0 GOFLAGS=-buildvcs=false

version=$(go -C tools list -m -f '{{.Version}}' "$module")
binary=$PWD/.bin/$1-$version-$(go env GOVERSION)
if [[ ! -x $binary ]]; then
  say "building $1 $version (once)"
  mkdir -p .bin
  go -C tools build -o "$binary.$$" "$package"
  mv "$binary.$$" "$binary"
fi
printf '%s\n' "$binary"
