#!/usr/bin/env bash
# Formats and modernizes packages, by default those of all workspace modules: scripts/fmt.sh [pattern...]
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

find_packages "$@"
gofumpt=$(scripts/tool.sh gofumpt)
go fix "${packages[@]}"
"$gofumpt" -l -w "${packages[@]%/...}"
