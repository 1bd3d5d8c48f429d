#!/usr/bin/env bash
# Compares the benchmarks of a git ref with those of the tree as it is: scripts/bench-compare.sh REF [pattern...]
# Both run COUNT times (default 6), in turns, so that a change in the machine's mood meets both. See microbench.sh for BENCH and BENCHTIME.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

base=${1:-}
[[ -n $base ]] || fail "say what to compare with: make bench-compare BASE=main"
shift
git rev-parse --quiet --verify "$base^{commit}" >/dev/null || fail "'$base' is no commit"
benchstat=$(scripts/tool.sh benchstat)

tmp=$(mktemp -d)
cleanup() {
  git worktree remove --force "$tmp/base" 2>/dev/null || true
  rm -rf "$tmp"
}
trap cleanup EXIT
git worktree add --quiet --detach "$tmp/base" "$base"
# The base is measured by the scripts of today, and may be older than they are.
rm -rf "$tmp/base/scripts"
cp -R scripts "$tmp/base/scripts"

rounds=${COUNT:-6}
for ((round = 1; round <= rounds; round++)); do
  say "round $round of $rounds: $base"
  COUNT=1 "$tmp/base/scripts/microbench.sh" "$@" | tee -a "$tmp/old.txt" >&2
  say "round $round of $rounds: the tree as it is"
  COUNT=1 scripts/microbench.sh "$@" | tee -a "$tmp/new.txt" >&2
done
"$benchstat" "base=$tmp/old.txt" "tree=$tmp/new.txt"
