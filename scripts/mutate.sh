#!/usr/bin/env bash
# Changes one small thing at a time in the sources, and reports which changes no test notices: scripts/mutate.sh [target...]
#
# PKG names targets, SAMPLE is how many mutants of each large one are tried (0 for all), and SEED chooses them. With AGAIN=1 only those
# are tried that have survived the last trial. The sources stay as they are. Long tests are left out, as with -short.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || fail "there is no redis-server here: install it (Debian: apt-get install redis-server)"
export REDISTEST_REQUIRE=1 GOFLAGS="${GOFLAGS:-} -trimpath"
read -ra targets <<<"${PKG:-}"
flags=(-short -sample "${SAMPLE:-120}" -seed "${SEED:-1}")
[[ -z ${AGAIN:-} ]] || flags+=(-again)
exec go run ./tools/mutate "${flags[@]}" "${targets[@]}" "$@"
