#!/usr/bin/env bash
# Records TRACES (100) runs of real workers, and has the model of locks in asynq's own scripts explain each of them: model/trace.pml. Then it records
# runs with each of twelve faults in the scripts, of which the model must reject one at least. SEED (0) is that of the first run.
# traces.sh FAULT... tries these faults alone, "-" none of them.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

have redis-server || scripts/test-deps.sh
find_spin traces

readonly package=./internal/verify/traces
readonly seconds=60 # for one run
readonly each=${EACH:-6} # runs with a fault, until one is rejected
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export REDISTEST_REQUIRE=1
wrong=0

# verifier builds that of a setting, and says where it is.
verifier() {
  local folder=$1 setting=$2 dir=$work/verifier-$2 switches
  if [[ ! -x $dir/pan ]]; then
    mkdir -p "$dir"
    read -ra switches <"$folder/$setting.switches"
    (cd "$dir" && spin "${switches[@]}" -DTRACED -DEVENTS=allowed -a "$root/model/fused.pml" &&
      "${compile[@]}" -O0 -w -DSAFETY -DNOREDUCE -DNOFAIR -DVECTORSZ=1024 -DMEMLIM=4000 -o pan pan.c) >"$dir/build" 2>&1 ||
      { cat "$dir/build" >&2 && fail "cannot build the verifier of $setting"; }
  fi
  printf '%s\n' "$dir"
}

# explain sets verdict, length, furthest and states of a recorded run.
explain() {
  local trace=$1 name dir status=0
  name=$(basename "$trace" .trace)
  dir=$(verifier "$(dirname "$trace")" "${name%%.*}")
  (cd "$dir" && TRACE=$trace timeout "$seconds" nice -n 10 ./pan -E -n -m100000 -w20) >"$work/out" 2>&1 || status=$?
  furthest=$(sed -n 's/^furthest \([0-9]*\) of .*/\1/p' "$work/out")
  length=$(sed -n 's/^furthest [0-9]* of \([0-9]*\)$/\1/p' "$work/out")
  states=$(awk '/states, stored/ { printf "%.0f", $1; exit }' "$work/out")
  if grep -q 'assertion violated (kind!=0)' "$work/out"; then
    verdict=accepted
  elif ((status != 0)) || grep -qiE 'assertion violated [^+]|search depth too small|out of memory|not completed' "$work/out"; then
    verdict="no verdict"
  else
    verdict=rejected
  fi
}

# reason prints the event at which a run was rejected, and what the model would have it leave.
reason() {
  awk -v n="$furthest" '$1 == n { sub(/^ *[0-9]+ /, ""); print "    recorded: " $0 }' "${1%.trace}.events"
  sed -n 's/^model: /    model:    /p' "$work/out" | head -n 3
}

# faulty prepares a fault: its name, the script, the text there, and what it becomes.
faulty() {
  local file=$2 text
  text=$(<"$file")
  [[ $text == *"$3"* ]] || fail "fault $1: $file does not have the text \"$3\""
  printf '%s\n' "${text/"$3"/"$4"}" >"$work/$1.lua"
  printf '{"Replace": {"%s": "%s"}}\n' "$root/$file" "$work/$1.lua" >"$work/$1.json"
}

# reject records runs with a fault, of a plot that shows it, until the model rejects one.
reject() {
  local name=$1 plot=$2 folder=$work/with-$1 trace
  shift 2
  if ((${#only[@]} > 0)) && [[ " ${only[*]} " != *" $name "* ]]; then
    return
  fi
  faulty "$name" "$@"
  mkdir -p "$folder"
  nice -n 10 go test -overlay "$work/$name.json" -count=1 -timeout 10m -run '^TestRunsAreRecorded$' "$package" \
    -runs "$each" -only "$plot" -into "$folder" -faulty >"$work/recording" 2>&1 || { cat "$work/recording" >&2 && fail "cannot record runs with $name"; }
  local rejected=0 first= n=0
  for trace in "$folder"/*.trace; do
    n=$((n + 1))
    explain "$trace"
    if [[ $verdict == rejected ]]; then
      rejected=$((rejected + 1))
      if [[ -z $first ]]; then
        first=$(printf 'of %s at event %d of %d\n%s' "$(basename "$trace" .trace)" "$furthest" "$length" "$(reason "$trace")")
      fi
    elif [[ $verdict != accepted ]]; then
      cat "$work/out" >&2
      wrong=$((wrong + 1))
    fi
  done
  if ((rejected == 0)); then
    first=UNEXPECTED
    wrong=$((wrong + 1))
  fi
  printf '%-22s %-22s %d of %d rejected, the first one %s\n' "$name" "$plot" "$rejected" "$n" "$first"
}

only=("$@")
if ((${#only[@]} == 0)) || [[ ${only[0]} == - ]]; then
  mkdir "$work/runs"
  say "recording ${TRACES:-100} runs"
  nice -n 10 go test -count=1 -timeout 20m -run '^TestRunsAreRecorded$' "$package" -runs "${TRACES:-100}" -seed "${SEED:-0}" -into "$work/runs" >"$work/recording" 2>&1 ||
    { cat "$work/recording" >&2 && fail "cannot record the runs"; }
  printf '%-34s %7s %8s  %s\n' run events states verdict
  accepted=0
  for trace in "$work"/runs/*.trace; do
    explain "$trace"
    printf '%-34s %7d %8d  %s\n' "$(basename "$trace" .trace)" "$length" "$states" "$verdict"
    if [[ $verdict == accepted ]]; then
      accepted=$((accepted + 1))
    else
      reason "$trace"
      wrong=$((wrong + 1))
    fi
  done
  printf '%d runs accepted\n' "$accepted"
  ((accepted == ${TRACES:-100})) || wrong=$((wrong + 1))
fi

readonly ack=internal/broker/intake/lua/ack.lua locks=internal/lockwire/lua/locks.lua line=internal/line/lua
# shellcheck disable=SC2016 # the texts are Lua
{
  reject ack-keeps-the-lock one-key/plain $ack 'freed[#freed + 1] = lock' 'local kept = lock'
  reject ack-wakes-nobody one-key/held $ack 'local wanted = wakeReleased and a.wakes[i] or 0' 'local wanted = 0'
  reject wake-takes-all one-key/held $line/wake.lua 'if #woken == wanted then' 'if #woken == 100 then'
  reject ack-ends-any-run in-order/late-ack $ack 'if run ~= ARGV[at + 2] then' 'if not run then'
  reject ack-frees-any-lock in-order/late-ack $ack 'elseif value == owner then' 'elseif value then'
  reject done-stays-active one-key/plain internal/broker/intake/lua/done.lua "call('LREM', KEYS[1], 0, ARGV[1]) == 0" \
    "(string.sub(ARGV[1], 1, 1) == 't' and 1 or call('LREM', KEYS[1], 0, ARGV[1])) == 0"
  reject held-key-is-granted one-key/held $locks "owner, 'NX', 'PX', ttl)" "owner, 'PX', ttl)"
  reject token-is-not-raised one-key/plain $locks "redis.pcall('SET', fence, text, 'PX', fence_ttl, 'GET')" "redis.pcall('GET', fence)"
  reject any-task-is-first in-order/plain $line/admit.lua 'if first == entry then' 'if entry then'
  reject park-enters-nowhere one-key/held $line/waiters.lua "redis.call('ZADD', waiters, score, entry)
    count" 'count'
  reject recall-marks-nothing one-key/late-fetch internal/broker/intake/lua/recall.lua "call('SET', KEYS[#KEYS], '1', 'EX', ARGV[2])" ''
  reject give-back-keeps-lock in-order/stop internal/broker/intake/lua/give_back.lua 'release(KEYS, 5, #KEYS, ARGV[5])' '0'
}

((wrong == 0)) || fail "$wrong unexpected verdicts"
