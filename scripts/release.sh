#!/usr/bin/env bash
# Rehearses a release: scripts/release.sh v0.1.0
# It does what scripts/release-check.sh does, and writes what the release publishes to .release/v0.1.0: docs/releasing.md.
# SIGNING_KEY, an SSH key, signs the checksums.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

version=${1:-}
[[ $version ]] || fail "say which version, as in: make release VERSION=v0.1.0"
out=$PWD/.release/$version
rm -rf "$out"
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
for name in apidiff govulncheck cyclonedx-gomod; do
  binary=$(scripts/tool.sh "$name")
  ln -s "$binary" "$tools/$name"
done
mkdir -p .bin
go build -o .bin/release ./tools/release
export GOFLAGS="${GOFLAGS:-} -trimpath"
status=0
.bin/release -version "$version" -out "$out" -tools "$tools" || status=$?
if [[ -e $out/SHA256SUMS ]]; then
  say "$out"
  (cd "$out" && sha256sum --check --quiet SHA256SUMS && ls -l)
fi
exit "$status"
