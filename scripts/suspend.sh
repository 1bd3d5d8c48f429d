#!/usr/bin/env bash
# Tests what locks do while the machine of their holder is suspended: a laptop that sleeps, a virtual machine that is
# paused. Then the monotonic clock of a process stands still, and the wall clock and all servers go on. The tests hold the
# monotonic clock back by functions that this script adds to Go's runtime: runtime.StopMonotonic and
# runtime.ContinueMonotonic. They have the build tag suspend, and need linux/amd64, redis-server, etcd and PostgreSQL.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

if [[ $(go env GOOS)/$(go env GOARCH) != linux/amd64 ]]; then
  say "suspension: left out, because the clocks of this platform cannot be held back"
  exit 0
fi
runtime=$(go env GOROOT)/src/runtime
overlay=$PWD/.bin/suspend # always the same, so that Go builds everything once
mkdir -p "$overlay"

# change FILE FROM TO writes the runtime's FILE with each FROM replaced by TO.
change() {
  grep -qF "$2" "$runtime/$1" || fail "Go's runtime has changed: $1 has no \"$2\""
  sed "s/$2/$3/" "$runtime/$1" >"$overlay/$1"
}

change time_nofake.go 'return nanotime1()' 'return monotonic(nanotime1())'
change time_linux_amd64.s 'time·now<ABIInternal>' '·clocks<ABIInternal>'
change timeasm.go 'func time_now() (sec int64, nsec int32, mono int64)' \
  'func time_now() (sec int64, nsec int32, mono int64) {\n\tsec, nsec, mono = clocks()\n\treturn sec, nsec, monotonic(mono)\n}'
cat >"$overlay/suspend.go" <<'GO'
package runtime

var (
	stoppedAt  int64 // what the monotonic clock shows while it stands still
	stoodStill int64 // for how long it has stood still
)

func clocks() (sec int64, nsec int32, mono int64)

//go:nosplit
func monotonic(real int64) int64 {
	if stoppedAt != 0 {
		return stoppedAt
	}
	return real - stoodStill
}

func StopMonotonic() { stoppedAt = nanotime() }

func ContinueMonotonic() {
	stoodStill = nanotime1() - stoppedAt
	stoppedAt = 0
}
GO
{
  printf '{"Replace": {'
  comma=
  for file in time_nofake.go time_linux_amd64.s timeasm.go suspend.go; do
    printf '%s"%s": "%s"' "$comma" "$runtime/$file" "$overlay/$file"
    comma=', '
  done
  printf '}}\n'
} >"$overlay/overlay.json"

if (($# == 0)); then
  set -- ./locking ./pglock ./etcdlock ./internal/broker/intake
fi
REDISTEST_REQUIRE=1 go test -tags suspend -overlay "$overlay/overlay.json" -vet=off -count=1 -timeout 10m -run 'Suspended' "$@"
