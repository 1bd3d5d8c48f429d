#!/usr/bin/env bash
# Checks the models exhaustively, fence.pml (fencing tokens on Redlock), depose.pml (a key is taken from its holder), latest.pml (only the
# latest payload runs), supersede.pml (a task takes the place of another one) and fused.pml (locks in asynq's own scripts): the protocol must hold, each wrong variant must fail.
# model.sh NAME... runs only the configurations whose names begin so.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

readonly memory=6000 # MB, for one verifier
readonly seconds=300 # for one verifier
readonly depth=10000 # steps; a run that needs more fails

find_spin model

models=$PWD/model
model=
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
  [[ -f $dir/${model##*/}.trail ]] || return 0
  line=$(spin "$@" -k "$dir/${model##*/}.trail" "$model" 2>&1 </dev/null | sed -n 's/.*\.pml:\([0-9]*\), Error: assertion violated.*/\1/p' | head -n 1)
  [[ -z $line ]] || sed -n "${line}s,.*/\* *\(REACHED \)\{0\,1\}\([A-Z_]*\).*,\2,p" "$model"
}

# check runs one configuration: its name, "holds", "ends" (it holds, and no execution goes on for ever) or "fails", the assertion that must fail ("-" for none), its switches.
check() {
  local name=$1 expected=$2 assertion=$3
  shift 3
  wanted "$name" || return 0
  ran=$((ran + 1))
  local dir=$work/$name
  mkdir "$dir"
  # Without partial order reduction, and with full states: nothing is left out and nothing is hashed.
  # A verifier of fused.pml takes longer to optimize than to run.
  local optimize=-O1 cycles=(-DSAFETY) search=()
  if [[ $model == */fused.pml ]]; then
    optimize=-O0
  fi
  if [[ $expected == ends ]]; then
    cycles=(-DNP)
    search=(-l)
  fi
  if ! (cd "$dir" && spin "$@" -a "$model" && "${compile[@]}" "$optimize" -w "${cycles[@]}" -DNOREDUCE -DNOFAIR -DVECTORSZ=1024 \
    -DMEMLIM="$memory" -o pan pan.c) >"$dir/build" 2>&1; then
    cat "$dir/build" >&2
    fail "cannot build the verifier of $name"
  fi
  local begin=$EPOCHREALTIME status=0
  (cd "$dir" && timeout "$seconds" nice -n 10 ./pan "${search[@]}" -m"$depth" -w24) >"$dir/out" 2>&1 || status=$?
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
    [[ $expected != ends ]] || verdict=ends
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

model=$models/fence.pml

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

model=$models/depose.pml

# The protocol of docs/design.md, 3.11, on one lock server and on three.
check depose-1 holds - -DPROPS=3 -DSPREAD=3 -DBLOCK=3
check depose-1-expiry holds - -DPROPS=3 -DSPREAD=3 -DBLOCK=3 -DEXPIRY=1
check depose-3 holds - -DNODES=3 -DTRIES=1
check depose-3-expiry holds - -DNODES=3 -DTRIES=1 -DPROPS=1 -DSPREAD=0 -DEXPIRY=1
check depose-3-retake holds - -DNODES=3 -DTRIES=1 -DPROPS=1 -DRETAKE=1
check depose-3-twice holds - -DNODES=3 -DTRIES=2 -DPROPS=1 -DSPREAD=0 -DBEGUN=1
check depose-3-unsorted holds - -DNODES=3 -DTRIES=1 -DPROPS=1 -DSPREAD=0 -DSORT=0

# The model does reach what it is about: "fails" means reached.
check depose-r-victim fails VICTIM -DNODES=3 -DTRIES=1 -DPROPS=1 -DREACH=2
check depose-r-next fails NEXT_HOLDER -DNODES=3 -DTRIES=1 -DPROPS=1 -DREACH=1
check depose-r-repeated fails REPEATED -DREACH=3

# Protocols known to be wrong.
check depose-m01-no-raise fails REFUSED -DMUTANT=1
check depose-m02-from-first fails REFUSED -DMUTANT=2
check depose-m03-plain-delete fails EXCLUSION -DMUTANT=3
check depose-m04-no-floor fails REFUSED -DMUTANT=4
check depose-m05-floor-late fails EXCLUSION -DMUTANT=5
check depose-m06-next-overlaps fails NEXT -DMUTANT=6
check depose-m07-two-steps fails EXCLUSION -DMUTANT=7
check depose-m08-takes-any fails NOT_THE_NEXT -DMUTANT=8
check depose-m09-undone fails EXCLUSION -DMUTANT=9
check depose-m10-minority-undone fails EXCLUSION -DNODES=3 -DTRIES=1 -DPROPS=1 -DMUTANT=10
check depose-m11-unmarked fails GONE -DNODES=3 -DTRIES=1 -DPROPS=1 -DMUTANT=11
check depose-m12-marked-there fails GONE -DNODES=3 -DTRIES=1 -DPROPS=1 -DRETAKE=1 -DMUTANT=12
check depose-m13-floor-early fails NEXT -DNODES=3 -DTRIES=1 -DPROPS=1 -DMUTANT=13

model=$models/latest.pml

# The protocol of docs/design.md, 5.9.
check latest-4-payloads holds - -DPAYLOADS=4
check latest-2-runs holds - -DRUNS=2 -DBUDGET=3
check latest-stale holds - -DPAYLOADS=3 -DRUNS=2 -DSTALE=1
check latest-deleted holds - -DPAYLOADS=3 -DDELETED=1

# The model does reach what it is about: "fails" means reached.
check latest-r-replaced fails REPLACED -DREACH=1
check latest-r-beside fails BESIDE -DREACH=2
check latest-r-yielded fails YIELDED -DREACH=3
check latest-r-late fails LATE -DREACH=4

# Protocols known to be wrong.
check latest-m01-no-check fails ORDER -DPAYLOADS=3 -DMUTANT=1
check latest-m02-number-beside fails ORDER -DPAYLOADS=3 -DMUTANT=2
check latest-m03-into-runs fails LAST -DPAYLOADS=3 -DMUTANT=3
check latest-m04-two-steps fails LAST -DPAYLOADS=3 -DMUTANT=4
check latest-m05-to-accepted fails YIELDS_TO_ONE_THAT_HAS_BEGUN -DPAYLOADS=3 -DMUTANT=5
check latest-m06-into-over fails LAST -DPAYLOADS=3 -DMUTANT=6

model=$models/supersede.pml

# The protocol of docs/design.md, 5.10.
check supersede-all holds - -DBUDGET=1
check supersede-all-2-faults holds - -DBUDGET=2
check supersede-first-two holds - -DKINDS=3 -DBUDGET=2
check supersede-one holds - -DKINDS=2 -DBUDGET=2
check supersede-two holds - -DKINDS=6 -DBUDGET=2

# The model does reach what it is about: "fails" means reached.
check supersede-r-stopped fails STOPPED -DBUDGET=0 -DREACH=1
check supersede-r-deposed fails DEPOSED -DBUDGET=0 -DREACH=2
check supersede-r-ended fails ENDED -DBUDGET=0 -DREACH=3
check supersede-r-done-told fails DONE_TOLD -DBUDGET=0 -DREACH=4
check supersede-r-too-late fails TOO_LATE -DBUDGET=0 -DREACH=5

# Protocols known to be wrong.
check supersede-m01-no-look fails BY_ONE_THAT_COMES -DKINDS=2 -DBUDGET=0 -DMUTANT=1
check supersede-m02-looks-too-soon fails BY_ONE_THAT_COMES -DKINDS=2 -DBUDGET=0 -DMUTANT=2
check supersede-m03-all-yield fails BY_A_NEWER_ONE -DBUDGET=0 -DMUTANT=3
check supersede-m04-by-attempt fails BY_A_NEWER_ONE -DMUTANT=4
check supersede-m05-by-refusal fails BY_A_NEWER_ONE -DMUTANT=5
check supersede-m06-frees-first fails EXCLUSION -DBUDGET=0 -DMUTANT=6
check supersede-m07-ends-beside fails COUNTS -DBUDGET=0 -DMUTANT=7
check supersede-m08-ends-all fails BY_A_NEWER_ONE -DBUDGET=0 -DMUTANT=8

model=$models/fused.pml

# Fetch with lock, ack with pass.
check fused-2-workers holds - -DBUDGET=2
check fused-3-workers holds - -DWORKERS=3 -DBUDGET=2
check fused-1-slot holds - -DSLOTS=1 -DBUDGET=2
check fused-4-tasks holds - -DTASKS=4 -DBUDGET=1
check fused-2-keys holds - -DKEYSET=1 -DBUDGET=1
check fused-4-tasks-2-keys holds - -DTASKS=4 -DKEYSET=1 -DBUDGET=0
check fused-wrong-key holds - -DKEYSET=2 -DBUDGET=1
check fused-order holds - -DORDER=1 -DBUDGET=2
check fused-leave holds - -DLEAVE=1 -DBUDGET=1
check fused-leave-2-keys holds - -DLEAVE=1 -DKEYSET=1 -DBUDGET=0
check fused-leave-no-pass holds - -DLEAVE=1 -DPASS=0 -DBUDGET=1
check admit-2-workers holds - -DLEVEL=2 -DBUDGET=1
check admit-2-keys holds - -DLEVEL=2 -DKEYSET=1 -DBUDGET=0
check admit-order holds - -DLEVEL=2 -DORDER=1 -DBUDGET=2
check fused-lost-calls holds - -DBUDGET=3 -DEVENTS=CRASH+LOSS+LATE
check fused-no-pass holds - -DPASS=0 -DBUDGET=2
check fused-no-pass-2-keys holds - -DPASS=0 -DKEYSET=1 -DBUDGET=1
check fused-no-pass-order holds - -DPASS=0 -DORDER=1 -DBUDGET=2
check fused-no-pass-lost holds - -DPASS=0 -DBUDGET=3 -DEVENTS=CRASH+LOSS+LATE
check fused-no-pass-lost-stop holds - -DPASS=0 -DBUDGET=3 -DEVENTS=LOSS+LATE+STOP
check admit-lost-calls holds - -DLEVEL=2 -DSLOTS=1 -DBUDGET=2 -DEVENTS=CRASH+LOSS+LATE
check admit-lost-calls-stop holds - -DLEVEL=2 -DBUDGET=2 -DEVENTS=LOSS+LATE+STOP
check found-2-workers holds - -DLEVEL=2 -DPASS=0 -DFOUND=1 -DBUDGET=1
check found-2-keys holds - -DLEVEL=2 -DPASS=0 -DFOUND=1 -DKEYSET=1 -DBUDGET=0
check found-order holds - -DLEVEL=2 -DPASS=0 -DFOUND=1 -DORDER=1 -DBUDGET=2
check found-lost-calls holds - -DLEVEL=2 -DPASS=0 -DFOUND=1 -DSLOTS=1 -DBUDGET=2 -DEVENTS=CRASH+LOSS+LATE
check found-lost-calls-stop holds - -DLEVEL=2 -DPASS=0 -DFOUND=1 -DBUDGET=2 -DEVENTS=LOSS+LATE+STOP
check successor-2-workers holds - -DSUCCESSOR=1 -DPASS=0 -DBUDGET=2
check successor-3-workers holds - -DSUCCESSOR=1 -DPASS=0 -DWORKERS=3 -DBUDGET=1
check successor-1-slot holds - -DSUCCESSOR=1 -DPASS=0 -DSLOTS=1 -DBUDGET=2
check successor-two holds - -DSUCCESSOR=2 -DPASS=0 -DBUDGET=1
check successor-block holds - -DSUCCESSOR=1 -DPASS=0 -DBLOCK=3 -DBUDGET=1
check successor-4-tasks holds - -DSUCCESSOR=1 -DPASS=0 -DTASKS=4 -DBLOCK=3 -DBUDGET=0
check successor-2-keys holds - -DSUCCESSOR=1 -DPASS=0 -DKEYSET=1 -DBUDGET=1
check successor-4-tasks-2-keys holds - -DSUCCESSOR=1 -DPASS=0 -DTASKS=4 -DKEYSET=1 -DBUDGET=0
check successor-wrong-key holds - -DSUCCESSOR=1 -DPASS=0 -DKEYSET=2 -DBUDGET=1
check successor-leave holds - -DSUCCESSOR=1 -DPASS=0 -DLEAVE=1 -DBUDGET=1
check successor-lost-calls holds - -DSUCCESSOR=1 -DPASS=0 -DBUDGET=2 -DEVENTS=CRASH+LOSS+LATE
check successor-lost-calls-stop holds - -DSUCCESSOR=1 -DPASS=0 -DBUDGET=3 -DEVENTS=LOSS+LATE+STOP
check recovery-2-workers holds - -DRECOVERY=1 -DPASS=0 -DBUDGET=2 -DEVENTS=CRASH+SILENCE+PAUSE+DOUBT+STOP
check recovery-lost-calls holds - -DRECOVERY=1 -DPASS=0 -DBUDGET=2 -DEVENTS=CRASH+SILENCE+LOSS+LATE
check recovery-events holds - -DRECOVERY=1 -DPASS=0 -DBUDGET=2 -DEVENTS=SILENCE+LEASELESS+TIMEOUT+RETRY+ARCHIVE+GIVEBACK+TIMER
check recovery-in-handlers holds - -DRECOVERY=1 -DLEVEL=2 -DPASS=0 -DSLOTS=1 -DBUDGET=1 -DEVENTS=CRASH+SILENCE
check recovery-2-keys holds - -DRECOVERY=1 -DPASS=0 -DKEYSET=1 -DBUDGET=1 -DEVENTS=CRASH+SILENCE
check recovery-order holds - -DRECOVERY=1 -DPASS=0 -DORDER=1 -DBUDGET=2 -DEVENTS=CRASH+SILENCE+RETRY
check recovery-successor holds - -DRECOVERY=1 -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DEVENTS=CRASH+SILENCE
# What the recorded runs need of the model, beyond that (scripts/traces.sh).
check open-fetches holds - -DPASS=0 -DLEAVE=1 -DFEWER=1 -DPLAIN=1 -DBUDGET=1
check open-later holds - -DPASS=0 -DLATER=1 -DBUDGET=2
check open-order holds - -DPASS=0 -DLEAVE=1 -DORDER=1 -DFEWER=1 -DPLAIN=1 -DLATER=1 -DBUDGET=1
check open-follow holds - -DSUCCESSOR=1 -DPASS=0 -DFOLLOW=1 -DBUDGET=1
check open-apart holds - -DSUCCESSOR=1 -DPASS=0 -DAPART=1 -DBUDGET=1
check open-keys-apart holds - -DSUCCESSOR=1 -DPASS=0 -DKEYSET=3 -DFOLLOW=1 -DLATER=1 -DBUDGET=1
check open-all holds - -DSUCCESSOR=1 -DPASS=0 -DLEAVE=1 -DFEWER=1 -DPLAIN=1 -DLATER=1 -DFOLLOW=1 -DAPART=1 -DBUDGET=0
check fused-ends ends - -DBUDGET=1
check fused-no-pass-ends ends - -DPASS=0 -DBUDGET=1
check fused-order-ends ends - -DORDER=1 -DBUDGET=1
check fused-2-keys-ends ends - -DKEYSET=1 -DBUDGET=0
check successor-ends ends - -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1

# The model does reach what it is about: "fails" means reached.
check fused-r-standby fails SEEN -DREACH=1
check fused-r-pass fails SEEN -DREACH=2
check fused-r-late-first fails SEEN -DREACH=3
check fused-r-late-after fails SEEN -DREACH=4
check fused-r-two-at-work fails SEEN -DREACH=5
check fused-r-recall-last fails SEEN -DPASS=0 -DBUDGET=1 -DREACH=6
check fused-r-recall-first fails SEEN -DPASS=0 -DBUDGET=1 -DREACH=7
check fused-r-late-takes fails SEEN -DPASS=0 -DBUDGET=1 -DREACH=8
check fused-r-ended-counts fails SEEN -DPASS=0 -DBUDGET=1 -DREACH=9
check successor-r-starts fails SEEN -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DREACH=10
check successor-r-twice fails SEEN -DSUCCESSOR=1 -DPASS=0 -DBLOCK=3 -DBUDGET=0 -DREACH=11
check successor-r-asks fails SEEN -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DREACH=12
check successor-r-run-over fails SEEN -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DREACH=13
check recovery-r-frees fails SEEN -DRECOVERY=1 -DPASS=0 -DBUDGET=1 -DEVENTS=SILENCE -DREACH=15
check recovery-r-takes-back fails SEEN -DRECOVERY=1 -DPASS=0 -DBUDGET=1 -DEVENTS=SILENCE -DREACH=16
check successor-r-wakes fails SEEN -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DREACH=14

# Protocols known to be wrong.
check fused-m01-ack-forgets fails ALL_END -DMUTANT=1
check fused-m02-fetch-forgets fails ALL_END -DMUTANT=2
check fused-m03-unmarked fails ALL_END -DMUTANT=3
check fused-m04-pass-unguarded fails EXCLUSION -DMUTANT=4
check fused-m05-unrecalled fails ALL_END -DPASS=0 -DBUDGET=1 -DEVENTS=LOSS -DMUTANT=5
check admit-m05-unrecalled fails ALL_END -DLEVEL=2 -DBUDGET=1 -DEVENTS=LATE -DMUTANT=5
check fused-m06-owner-reused fails EXCLUSION -DMUTANT=6
check fused-m07-from-reply fails EXCLUSION -DMUTANT=7
check fused-m08-unchecked fails FENCE -DMUTANT=8
check fused-m09-standby-early fails EXCLUSION -DMUTANT=9 -DEVENTS=TIMEOUT
check fused-m10-fused-early fails EXCLUSION -DMUTANT=10
check fused-m11-leaseless-keeps fails ALL_END -DMUTANT=11
check fused-m12-retry-keeps fails ALL_END -DMUTANT=12
check fused-m13-recovery-frees fails EXCLUSION -DMUTANT=13
check fused-m14-stop-passes fails CLEAN_EXIT -DMUTANT=14
check fused-m15-stop-strands fails CLEAN_EXIT -DMUTANT=15
check fused-m16-stop-hurries fails CLEAN_EXIT -DMUTANT=16
check fused-m17-pass-unfenced fails FENCE -DMUTANT=17
check fused-m18-untimed fails ALL_END -DMUTANT=18
check fused-m19-silent fails WAKES -DMUTANT=19
check admit-m19-silent fails WAKES -DLEVEL=2 -DBUDGET=0 -DMUTANT=19
check fused-m20-swallows fails WAKES -DKEYSET=1 -DBUDGET=1 -DMUTANT=20
check fused-m21-partial fails EXCLUSION -DKEYSET=1 -DBUDGET=0 -DMUTANT=21
check fused-m22-pass-blind fails ONE_PLACE -DMUTANT=22
check fused-m23-syncer-by-id fails EXCLUSION -DMUTANT=23
check admit-m24-park-blind fails WAKES -DLEVEL=2 -DBUDGET=0 -DMUTANT=24
check fused-m25-admit-any fails IN_ORDER -DORDER=1 -DBUDGET=1 -DMUTANT=25
check fused-m25-admit-any-no-pass fails IN_ORDER -DPASS=0 -DORDER=1 -DBUDGET=1 -DMUTANT=25
check fused-m26-pass-any fails IN_ORDER -DORDER=1 -DBUDGET=1 -DMUTANT=26
check fused-m27-standby-ahead fails IN_ORDER -DORDER=1 -DBUDGET=1 -DMUTANT=27
check fused-m28-heir-gone fails ALL_END -DEVENTS=GIVEBACK -DMUTANT=28
check fused-m29-keys-trusted fails EXCLUSION -DKEYSET=2 -DBUDGET=0 -DMUTANT=29
check fused-m30-ack-by-id fails OWN_TASK -DMUTANT=30
check fused-m31-heir-overrun fails EXCLUSION -DTASKS=4 -DBUDGET=0 -DMUTANT=31
check fused-m32-standby-unfenced fails FENCE -DBUDGET=0 -DMUTANT=32
check fused-m33-giveback-keeps fails ALL_END -DEVENTS=GIVEBACK -DMUTANT=33
check fused-m34-release-blind fails EXCLUSION -DMUTANT=34
check fused-m35-conflict-keeps fails ALL_END -DKEYSET=2 -DBUDGET=0 -DMUTANT=35
check fused-m36-admit-blind fails EXCLUSION -DBUDGET=0 -DMUTANT=36
check fused-m37-standby-stuck fails IN_ORDER -DORDER=1 -DBUDGET=1 -DMUTANT=37
check fused-m38-standby-unlocked fails FENCE -DMUTANT=38
check fused-m39-heir-active fails EXCLUSION -DMUTANT=39
check fused-m40-park-later fails WAKES -DLEAVE=1 -DBUDGET=0 -DMUTANT=40
check fused-m41-ack-unmarked fails ALL_END -DPASS=0 -DBUDGET=1 -DEVENTS=LATE -DMUTANT=41
check admit-m41-ack-unmarked fails ALL_END -DLEVEL=2 -DBUDGET=1 -DEVENTS=LATE -DMUTANT=41
check fused-m42-mark-ignored fails ALL_END -DPASS=0 -DBUDGET=1 -DEVENTS=LATE -DMUTANT=42
check fused-m43-repeat-answers fails ALL_END -DPASS=0 -DBUDGET=1 -DEVENTS=LOSS -DMUTANT=43
check fused-m44-stop-unrecalled fails CLEAN_EXIT -DPASS=0 -DBUDGET=2 -DEVENTS=LOSS+STOP -DMUTANT=44
check fused-m45-admit-behind fails IN_ORDER -DPASS=0 -DORDER=1 -DBUDGET=2 -DMUTANT=45
check fused-m46-counts-taken fails COUNTED -DPASS=0 -DBUDGET=1 -DEVENTS=PAUSE -DMUTANT=46
check found-m03-unmarked fails ALL_END -DLEVEL=2 -DPASS=0 -DFOUND=1 -DMUTANT=3
check found-m33-giveback-keeps fails ALL_END -DLEVEL=2 -DPASS=0 -DFOUND=1 -DEVENTS=GIVEBACK -DMUTANT=33
check found-m47-parked-again fails OWN_TASK -DLEVEL=2 -DPASS=0 -DFOUND=1 -DBUDGET=1 -DEVENTS=LOSS -DMUTANT=47
check successor-m08-unchecked fails FENCE -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=8
check successor-m12-retry-keeps fails ALL_END -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=12
check successor-m15-stop-strands fails CLEAN_EXIT -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=15
check successor-m19-silent fails WAKES -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DMUTANT=19
check successor-m24-park-blind fails WAKES -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DMUTANT=24
check successor-m30-ack-by-id fails OWN_TASK -DSUCCESSOR=1 -DPASS=0 -DMUTANT=30
check successor-m33-giveback-keeps fails ALL_END -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=33
check successor-m48-early fails EXCLUSION -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DMUTANT=48
check successor-m49-unchecked fails EXCLUSION -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=49
check successor-m50-owned fails EXCLUSION -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DMUTANT=50
check successor-m51-sent fails EXCLUSION -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=51
check successor-m52-overrun fails FENCE -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=52
check successor-m53-unfenced fails FENCE -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DMUTANT=53
check successor-m54-unleased fails ONE_RUN -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=54
check successor-m55-partly fails FENCE -DSUCCESSOR=1 -DPASS=0 -DTASKS=4 -DKEYSET=1 -DBUDGET=0 -DMUTANT=55
check successor-m56-endless fails ALL_END -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=56
check successor-m57-strands fails CLEAN_EXIT -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=57
check successor-m58-parks fails OWN_TASK -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=58
check successor-m59-own-value fails EXCLUSION -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DMUTANT=59
check successor-m60-strict fails COUNTS -DSUCCESSOR=1 -DPASS=0 -DBUDGET=0 -DMUTANT=60
check successor-m61-silent fails WAKES -DSUCCESSOR=1 -DPASS=0 -DBUDGET=1 -DMUTANT=61
check recovery-m30-ack-by-id fails OWN_TASK -DRECOVERY=1 -DPASS=0 -DBUDGET=1 -DEVENTS=SILENCE -DMUTANT=30
check recovery-m62-silent-trusts fails EXCLUSION -DRECOVERY=1 -DPASS=0 -DBUDGET=1 -DEVENTS=SILENCE -DMUTANT=62
check recovery-m63-frees-any fails EXCLUSION -DRECOVERY=1 -DLEVEL=2 -DBUDGET=1 -DEVENTS=SILENCE -DMUTANT=63
check recovery-m64-back-unchecked fails ONE_PLACE -DRECOVERY=1 -DPASS=0 -DBUDGET=1 -DEVENTS=SILENCE -DMUTANT=64
check recovery-m65-back-in-two fails ONE_PLACE -DRECOVERY=1 -DPASS=0 -DBUDGET=2 -DEVENTS=CRASH+SILENCE -DMUTANT=65
check successor-in-order fails IN_ORDER -DSUCCESSOR=1 -DPASS=0 -DORDER=1 -DBUDGET=1
check admit-m46-counts-taken fails COUNTED -DLEVEL=2 -DBUDGET=1 -DEVENTS=PAUSE -DMUTANT=46

((ran > 0)) || fail "no configuration has that name"
if ((bad > 0)); then
  fail "$bad of $ran verdicts are not as expected"
fi
say "$ran verdicts, all as expected"
