# Shared by the other scripts, which source it. It goes to the root of the repository.
# shellcheck shell=bash

cd -P "$(dirname "${BASH_SOURCE[0]}")/.." || exit

say() { printf '==> %s\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# has_postgres looks where Debian puts the server, too, which is not in PATH.
has_postgres() { have postgres || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }

# find_packages sets the array packages to its arguments or, without any, to one pattern for each workspace module that has packages.
find_packages() {
  packages=("$@")
  if (($# > 0)); then
    return
  fi
  local dirs dir found
  dirs=$(go list -m -f '{{.Dir}}')
  while IFS= read -r dir; do
    dir=.${dir#"$PWD"}
    found=$(go list -e "$dir/..." 2>/dev/null)
    if [[ -n $found ]]; then
      packages+=("$dir/...")
    fi
  done <<<"$dirs"
  if ((${#packages[@]} == 0)); then
    fail "the workspace has no packages"
  fi
}

# compile_alike has every go command from here on compile in one way, with the race detector if RACE is set, so that what one script has
# compiled is compiled for all. With -trimpath, clones and worktrees share it, too.
compile_alike() {
  export GOFLAGS="${GOFLAGS:-} -trimpath"
  if [[ ${RACE:-} ]] && { have cc || have gcc || have clang; }; then
    # A program with the race detector sleeps for a second before it exits, and so does each worker process that a test starts.
    export CGO_ENABLED=1 GOFLAGS="$GOFLAGS -race" GORACE="atexit_sleep_ms=10 ${GORACE:-}"
  fi
}

# find_spin sets the array compile to the C compiler that builds what spin makes, for the make target that needs both.
find_spin() {
  local target=$1 cc=${CC:-} candidate
  have spin || fail "there is no spin here. Install it (Debian: apt-get install spin gcc; macOS: brew install spin) and run \"make $target\" again."
  for candidate in cc gcc clang; do
    if [[ -z $cc ]] && have "$candidate"; then
      cc=$candidate
    fi
  done
  if [[ -z $cc ]] || ! have "${cc%% *}"; then
    fail "there is no C compiler here. Install one (Debian: apt-get install spin gcc) and run \"make $target\" again."
  fi
  read -ra compile <<<"$cc"
}
