#!/usr/bin/env bash
# Prints the path of a pinned tool, which it builds first when needed: scripts/tool.sh golangci-lint|gofumpt|benchstat,
# or apidiff|govulncheck|cyclonedx-gomod for a release
#
# The versions stand in tools/go.mod, and those for a release in tools/releasing/go.mod. "go tool -modfile" cannot be used in a workspace, and links again for each
# user; a binary in .bin, named after its version and Go's, is built once.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

folder=tools
case ${1:-} in
golangci-lint) module=github.com/golangci/golangci-lint/v2 package=$module/cmd/golangci-lint ;;
gofumpt) module=mvdan.cc/gofumpt package=$module ;;
benchstat) module=golang.org/x/perf package=$module/cmd/benchstat ;;
apidiff) folder=tools/releasing module=golang.org/x/exp package=$module/cmd/apidiff ;;
govulncheck) folder=tools/releasing module=golang.org/x/vuln package=$module/cmd/govulncheck ;;
cyclonedx-gomod) folder=tools/releasing module=github.com/CycloneDX/cyclonedx-gomod package=$module/cmd/cyclonedx-gomod ;;
*) fail "no tool is called '${1:-}'" ;;
esac

# The tools run here, whatever the caller builds for.
unset GOOS GOARCH
export GOWORK=off CGO_ENABLED=0 GOFLAGS=-buildvcs=false

version=$(go -C "$folder" list -m -f '{{.Version}}' "$module")
binary=$PWD/.bin/$1-$version-$(go env GOVERSION)
if [[ ! -x $binary ]]; then
  say "building $1 $version (once)"
  mkdir -p .bin
  go -C "$folder" build -o "$binary.$$" "$package"
  mv "$binary.$$" "$binary"
fi
printf '%s\n' "$binary"
