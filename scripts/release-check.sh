#!/usr/bin/env bash
# Checks that all modules can be fetched once they are tagged: scripts/release-check.sh [version]
# It packs each as the working tree has it, and fetches it in a fresh folder, without the workspace: docs/releasing.md.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

compile_alike
mkdir -p .bin
go build -o .bin/release ./tools/release
exec .bin/release ${1:+-version "$1"}
