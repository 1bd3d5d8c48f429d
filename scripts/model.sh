#!/usr/bin/env bash
# Checks the model of the fencing protocol (model/fence.pml) exhaustively: the protocol must hold, each wrong variant must fail.
# model.sh NAME... runs only the configurations whose names begin so.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

readonly memory=6000 # MB, for one verifier
readonly seconds=300 # for one verifier
readonly depth=10000 # steps; a run that needs more fails

have spin || fail "there is no spin here. Install it (Debian: apt-get install spin gcc; macOS: brew install spin) and run \"make model\" again."
cc=${CC:-}
for candidate in cc gcc clang; do
  if [[ -z $cc ]] && have "$candidate"; then
    cc=$candidate
  fi
done
if [[ -z $cc ]] || ! have "${cc%% *}"; then
  fail "there is no C compiler here. Install one (Debian: apt-get install spin gcc) and run \"make model\" again."
fi
read -ra compile <<<"$cc"

model=$PWD/model/fence.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
only=("$@")
bad=0
ran=0

# wanted tells whether a configuration was asked for.
wanted() {
  ((${#only[@]} == 0)) && return 0
  local prefix
  for prefix in "${only[@]}"; do
    [[ $1 == "$prefix"* ]] && return 0
  done
  return 1
}

# assertion_of names the assertion that failed, by the comment that stands beside it in the model.
assertion_of() {
  local dir=$1 line
  shift
  [[ -f $dir/fence.pml.trail ]] || return 0
  line=$(spin "$@" -k "$dir/fence.pml.trail" "$model" 2>&1 | sed -n 's/.*fence\.pml:\([0-9]*\), Error: assertion violated.*/\1/p' | head -n 1)
  [[ -z $line ]] || sed -n "${line}s,.*/\* *\(REACHED \)\{0\,1\}\([A-Z_]*\).*,\2,p" "$model"
}

# check runs one configuration: its name, "holds" or "fails", the assertion that must fail ("-" for none), its switches.
check() {
  local name=$1 expected=$2 assertion=$3
  shift 3
  wanted "$name" || return 0
  ran=$((ran + 1))
  local dir=$work/$name
  mkdir "$dir"
  # Without partial order reduction, and with full states: nothing is left out and nothing is hashed.
  if ! (cd "$dir" && spin "$@" -a "$model" && "${compile[@]}" -O1 -w -DSAFETY -DNOREDUCE -DNOFAIR -DVECTORSZ=1024 \
    -DMEMLIM="$memory" -o pan pan.c) >"$dir/build" 2>&1; then
    cat "$dir/build" >&2
    fail "cannot build the verifier of $name"
  fi
  local begin=$EPOCHREALTIME status=0
  (cd "$dir" && timeout "$seconds" ./pan -m"$depth" -w24) >"$dir/out" 2>&1 || status=$?
  local took=$(((${EPOCHREALTIME/./} - ${begin/./}) / 100000))
  local states reached errors found verdict
  states=$(awk '/states, stored/ { printf "%.0f", $1; exit }' "$dir/out")
  reached=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' "$dir/out" | head -n 1)
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$dir/out" | head -n 1)
  found=$(assertion_of "$dir" "$@")
  if ((status == 124)); then
    verdict="no answer in $seconds s"
  elif grep -qiE 'search depth too small|out of memory|reached -DMEMLIM|aborted|VECTORSZ' "$dir/out"; then
    verdict=truncated
  elif ((status != 0)) || [[ -z $errors ]]; then
    verdict="broken, status $status"
  elif ((errors == 0)) && grep -q 'Search not completed' "$dir/out"; then
    verdict=truncated
  elif ((errors == 0)); then
    verdict=holds
  else
    verdict="fails $found"
  fi
  local want=$expected
  if [[ $expected == fails ]]; then
    want="fails $assertion"
  fi
  local mark=
  if [[ $verdict != "$want" ]]; then
    mark="  UNEXPECTED"
    bad=$((bad + 1))
    grep -E '^(pan:|error:)|assertion violated|depth reached' "$dir/out" >&2 || true
  fi
  printf '%-24s %-30s %10s %6s %5d.%d  %s%s\n' "$name" "$want" "${states:--}" "${reached:--}" $((took / 10)) $((took % 10)) "$verdict" "$mark"
  rm -rf "$dir"
}

printf '%-24s %-30s %10s %6s %7s  %s\n' configuration expected states depth seconds verdict

# The protocol of docs/design.md, 3.4. a: with expiry. b: requests arrive twice and late. e: no expiry, so mutual exclusion is claimed too.
check a-3-clients holds - -DCLIENTS=3
check a-3-clients-blocks holds - -DCLIENTS=3 -DBLOCK=2
check a-2-clients-wide holds - -DCLIENTS=2 -DPROPS=4 -DSPREAD=4
check a-2-clients-untidy holds - -DTIDY=0 -DSORT=0
check a-2-attempts holds - -DATTEMPTS=2 -DPROPS=2 -DSPREAD=1
check b-dup holds - -DDUP=1 -DPROPS=2 -DSPREAD=2
check b-dup-blocks holds - -DDUP=1 -DBLOCK=2 -DPROPS=2 -DSPREAD=1
check e-3-clients holds - -DCLIENTS=3 -DEXPIRY=0 -DPROPS=1 -DSPREAD=1
check e-2-attempts holds - -DATTEMPTS=2 -DEXPIRY=0 -DPROPS=1 -DSPREAD=1
check e-dup holds - -DDUP=1 -DEXPIRY=0 -DPROPS=1 -DSPREAD=1

# k: a committed client asks for the lock again on nodes that have lost it.
check k-3-clients holds - -DCLIENTS=3 -DRETAKE=1 -DPROPS=2 -DSPREAD=1
check k-2-clients-wide holds - -DCLIENTS=2 -DRETAKE=1 -DPROPS=4 -DSPREAD=4
check k-2-clients-untidy holds - -DRETAKE=1 -DTIDY=0 -DSORT=0 -DPROPS=2 -DSPREAD=1
check k-blocks holds - -DCLIENTS=3 -DRETAKE=1 -DBLOCK=2 -DPROPS=2 -DSPREAD=1

# The model does reach what it is about: "fails" means reached.
check r-all-commit fails ALL_COMMIT -DCLIENTS=3 -DREACH=1
check r-by-renew fails BY_RENEW -DCLIENTS=3 -DREACH=2
check r-by-second-plan fails BY_SECOND_PLAN -DCLIENTS=3 -DREACH=3
check r-straggler fails STRAGGLER_ABOVE -DCLIENTS=3 -DREACH=4
check r-by-retake fails BY_RETAKE -DCLIENTS=3 -DRETAKE=1 -DREACH=5

# A claim that is too strong (README.md, "What order means").
check c-commit-order fails ORDER_BY_COMMIT -DCLIENTS=2 -DCLAIM=1

# Protocols known to be wrong.
check m01-max-of-incr fails UNIQUE -DCLIENTS=3 -DMUTANT=1
check m02-blind-write fails UNIQUE -DCLIENTS=3 -DMUTANT=2
check m03-owner-only fails UNIQUE -DCLIENTS=3 -DMUTANT=3
check m03-owner-only-dup fails UNIQUE -DATTEMPTS=2 -DDUP=1 -DMUTANT=3
check m04-first-answer fails UNIQUE -DCLIENTS=3 -DMUTANT=4
check m05-so-far fails UNIQUE -DCLIENTS=3 -DMUTANT=5
check m06-any-answer fails UNIQUE -DCLIENTS=3 -DMUTANT=6
check m07-clock-only fails UNIQUE -DCLIENTS=3 -DMUTANT=7
check m08-min-of-granted fails UNIQUE -DCLIENTS=3 -DMUTANT=8
check m09-sum-of-granted fails UNIQUE -DCLIENTS=3 -DMUTANT=9
check m10-blocks-overlap fails UNIQUE -DCLIENTS=3 -DBLOCK=2 -DMUTANT=10
check m11-counter-only fails UNIQUE -DCLIENTS=3 -DMUTANT=11
check m12-owner-reused fails EXCLUSION -DATTEMPTS=2 -DEXPIRY=0 -DPROPS=1 -DSPREAD=0 -DMUTANT=12
check m13-blind-release fails EXCLUSION -DATTEMPTS=2 -DEXPIRY=0 -DPROPS=1 -DSPREAD=0 -DMUTANT=13
check m14-retake-lowers fails UNIQUE -DCLIENTS=3 -DRETAKE=1 -DMUTANT=14
check m15-retake-commits fails UNIQUE -DCLIENTS=2 -DRETAKE=1 -DMUTANT=15

# The reductions of the model (inline tidy) do not hide what is wrong; only where C never falls, as they need.
check t01-max-of-incr fails UNIQUE -DCLIENTS=3 -DMUTANT=1 -DTIDY=1
check t04-first-answer fails UNIQUE -DCLIENTS=3 -DMUTANT=4 -DTIDY=1
check t05-so-far fails UNIQUE -DCLIENTS=3 -DMUTANT=5 -DTIDY=1
check t08-min-of-granted fails UNIQUE -DCLIENTS=3 -DMUTANT=8 -DTIDY=1
check t10-blocks-overlap fails UNIQUE -DCLIENTS=3 -DBLOCK=2 -DMUTANT=10 -DTIDY=1
check t-dup-min-of-granted fails UNIQUE -DDUP=1 -DMUTANT=8 -DTIDY=1

((ran > 0)) || fail "no configuration has that name"
if ((bad > 0)); then
  fail "$bad of $ran verdicts are not as expected"
fi
say "$ran verdicts, all as expected"
