#!/usr/bin/env bash
# Runs the tests that depend on the server most, and the demo, on each server that can be had: scripts/matrix.sh [row...]
# It writes what it has found into README, a row for each server and version of asynq. A server that cannot be had is not green: its row says
# why. It takes a few minutes for each server, one test at a time. Rows that are not named keep what an earlier run has found.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

# row|Debian suite|package|tools; the system's own redis-server has no suite.
servers='Redis 7.0|-|-|-
Redis 8.0, stable|trixie|redis-server|redis-tools
Redis 8, newest|sid|redis-server|redis-tools
Valkey 8.0|bookworm-backports|valkey-server|valkey-tools
Valkey 8.1|trixie|valkey-server|valkey-tools
Valkey 9, newest|sid|valkey-server|valkey-tools'
# The version of asynq that go.mod requires is tried on each server, these only once.
others='v0.25.1'

work=$PWD/.bin/matrix
mkdir -p "$work"
asynq=$(go list -m -f '{{.Version}}' github.com/hibiken/asynq)
export GOFLAGS="${GOFLAGS:-} -trimpath" REDISTEST_REQUIRE=1 RAPID_CHECKS=${RAPID_CHECKS:-20}

# wanted tells whether a row is to run.
wanted() {
  ((${#rows[@]} == 0)) && return
  local one
  for one in "${rows[@]}"; do
    [[ $one == "$1" ]] && return
  done
  return 1
}

# build compiles the tests and the demo once.
build() {
  say "compiling"
  local package
  for package in internal/verify/e2e locking internal/line internal/preflight; do
    go test -c -vet=off -o "$work/${package##*/}.test" "./$package"
  done
  go build -o "$work/orders" ./examples/orders
}

# play runs tests of a package that match a pattern, and adds to passed and failed: play e2e internal/verify/e2e PATTERN [flag...]
play() {
  local program=$1 folder=$2 pattern=$3 log=$work/log status=0 n
  shift 3
  (cd "$folder" && exec nice timeout 600 "$work/$program.test" -test.count=1 -test.v -test.parallel=2 -test.timeout=9m -test.run "$pattern" "$@") >"$log" 2>&1 || status=$?
  n=$(grep -c '^--- PASS' "$log" || true)
  passed=$((passed + n))
  # A test that is left out has not passed.
  local bad
  bad=$(sed -n 's/^--- \(FAIL\|SKIP\): \([^ ]*\).*/\2/p' "$log" | paste -sd' ')
  if ((status != 0)) || [[ $bad ]] || ((n == 0)); then
    failed="$failed ${bad:-$program $pattern}"
    cp "$log" "$work/failed-$(date +%s).log"
  fi
}

# demo runs the demo against a server of its own.
demo() {
  local dir port=$((20000 + RANDOM % 10000)) pid status=0
  dir=$(mktemp -d)
  (cd "$dir" && exec "$1" --bind 127.0.0.1 --port "$port" --save '' --appendonly no) >"$dir/log" 2>&1 &
  pid=$!
  local i
  for ((i = 0; i < 100; i++)); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    sleep 0.1
  done
  RAILTOKEN_REDIS_ADDR=127.0.0.1:$port timeout 120 "$work/orders" -demo -timeline "$dir/timeline.html" >"$dir/out" 2>&1 || status=$?
  kill "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  if ((status != 0)); then
    failed="$failed demo"
    cp "$dir/out" "$work/failed-demo-$(date +%s).log"
  else
    passed=$((passed + 1))
  fi
  rm -rf "$dir"
}

# cell prints what the tests of one topology have come to.
cell() {
  if [[ $failed ]]; then
    printf '**failed:**%s' "$failed"
  else
    printf '%d passed' "$passed"
  fi
}

# try runs everything on one server, and writes its row.
try() {
  local row=$1 launcher=$2 version one sentinel cluster
  export REDISTEST_SERVER=$launcher
  version=$("$launcher" --version | sed -E 's/.*v=([^ ]+).*/\1/')
  say "$row: $version, one server"
  passed=0 failed=
  play e2e internal/verify/e2e '^Test(ASoakOfKilled|OrderedTasks|ACrowd|ATaskWhoseDeadline|RedisGoesAway|AnOutageOf|AWakeThat|ShutdownIsBounded)' -tasks 300 -crowd 300
  play locking locking '^TestLostRepliesLoseNoLease$' -cuts 20
  play preflight internal/preflight .
  demo "$launcher"
  one=$(cell)
  say "$row: Sentinel"
  passed=0 failed=
  play e2e internal/verify/e2e Failover
  sentinel=$(cell)
  say "$row: Cluster"
  passed=0 failed=
  play e2e internal/verify/e2e 'OnACluster|Resharding'
  play line internal/line '^Test(OnAClusterScripts|ATaskIsEnqueuedOnceItsSlot|NoCallLosesATask|ATaskParksOnce)'
  cluster=$(cell)
  save "$row" "| $row | $version | $asynq | $one | $sentinel | $cluster |"
}

save() {
  printf '%s\n' "$2" >&2
  printf '%s\n' "$2" >"$work/$(tr ' ,' '__' <<<"$1").row"
}

# table prints the rows: of this run, of earlier ones, and those that nobody has run.
table() {
  printf '| Server | Version | asynq | One server | Sentinel | Cluster |\n| --- | --- | --- | --- | --- | --- |\n'
  local row
  while IFS= read -r row; do
    cat "$work/$(tr ' ,' '__' <<<"$row").row" 2>/dev/null || grep -F "| $row |" "$work/before" || printf '| %s | | | not run | not run | not run |\n' "$row"
  done < <(
    cut -d'|' -f1 <<<"$servers"
    printf 'asynq %s\n' $others
  )
}

# publish puts the table between the markers of README.
publish() {
  sed -n '/<!-- matrix -->/,/<!-- end of matrix -->/p' README.md >"$work/before"
  table >"$work/table"
  sed -e "/<!-- matrix -->/,/<!-- end of matrix -->/{/<!-- matrix -->/r $work/table" -e '/<!--/!d;}' README.md >"$work/README"
  cat "$work/README" >README.md
}

rows=("$@")
rm -f "$work"/*.row
built=
while IFS='|' read -r row suite package tools <&4; do
  wanted "$row" || continue
  [[ $built ]] || build
  built=1
  if [[ $suite == - ]]; then
    have redis-server || scripts/test-deps.sh
    launcher=$(command -v redis-server)
  elif ! launcher=$(scripts/server.sh "$suite" "$package" "$tools" 2>"$work/why"); then
    save "$row" "| $row | | | not to be had here: $(tail -n 1 "$work/why" | sed 's/^error: //') | | |"
    continue
  fi
  try "$row" "$launcher"
done 4<<<"$servers"
for version in $others; do
  wanted "asynq $version" || continue
  say "asynq $version"
  cp go.mod "$work/go.mod"
  cp go.sum "$work/go.sum"
  go mod edit -require="github.com/hibiken/asynq@$version" "$work/go.mod"
  if GOWORK=off go build -mod=mod -modfile "$work/go.mod" ./... >"$work/log" 2>&1; then
    save "asynq $version" "| asynq $version | | $version | compiles; its tests are not run | | |"
  else
    save "asynq $version" "| asynq $version | | $version | **does not compile:** $(grep -m 1 -o 'undefined: .*' "$work/log" || tail -n 1 "$work/log") | | |"
  fi
done
publish
! grep -qE 'failed|not to be had' "$work"/*.row || fail "not every row is green: README.md, and the logs in $work"
