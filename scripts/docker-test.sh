#!/usr/bin/env bash
# Builds the images, starts each profile of docker/compose.yaml, and kills and cuts off its workers and servers: docker/containers_test.go
# and watched_test.go.
# Without an engine it starts one of the system's packages, and removes everything of it at the end. Where no engine can run
# containers, or the images cannot be had, the tests are left out: it says why and succeeds.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

leave_out() {
  local -a tests
  mapfile -t tests < <(grep -ohP '^func \KTest\w+' docker/{containers,watched}_test.go)
  say "docker-test is left out: $*. These ${#tests[@]} tests are left out: ${tests[*]}"
  exit 0
}

cache=$PWD/.bin/docker
mkdir -p "$cache"
dir=$(mktemp -d "${TMPDIR:-/tmp}/railtoken-engine.XXXXXX")
engine=

# end stops the engine that was started here, and removes all that it has stored.
end() {
  if [[ -n $engine ]] && kill "$engine" 2>/dev/null; then
    wait "$engine" 2>/dev/null || true
    [[ ! -s $dir/rules ]] || iptables-restore <"$dir/rules" || true
    [[ -e $dir/bridge ]] || ip link delete docker0 2>/dev/null || true
  fi
  rm -rf "$dir"
}
trap end EXIT

# install_engine installs an engine, without starting its service.
install_engine() {
  local policy=/usr/sbin/policy-rc.d
  apt-get update -qq >/dev/null || return
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
  else
    policy=
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io iptables >/dev/null 2>&1
  local status=$?
  [[ -z $policy ]] || rm -f "$policy"
  return $status
}

# start_engine starts an engine whose socket, data and log are in the folder.
start_engine() {
  export DOCKER_HOST=unix://$dir/docker.sock
  # What it changes outside of its folder, and does not undo.
  iptables-save >"$dir/rules" 2>/dev/null || true
  [[ ! -e /sys/class/net/docker0 ]] || touch "$dir/bridge"
  # Not overlay2 where the folder is on an overlay itself: the engine finds that out.
  dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" --host "$DOCKER_HOST" >"$dir/log" 2>&1 &
  engine=$!
  local _
  for _ in {1..150}; do
    docker version >/dev/null 2>&1 && return
    kill -0 "$engine" 2>/dev/null || return
    sleep 0.2
  done
  return 1
}

# probe runs a container with a network, of an image that is the shell of the system's packages.
probe() {
  local root=$dir/probe
  mkdir -p "$root/bin"
  scripts/docker-images.sh "$cache" shell && cp "$cache/busybox" "$root/bin/" || return
  tar -C "$root" -c . | docker import - railtoken-probe:local && docker network create railtoken-probe &&
    docker run --rm --read-only --network railtoken-probe railtoken-probe:local /bin/busybox true
  local status=$?
  docker network rm railtoken-probe || true
  docker image rm railtoken-probe:local || true
  return $status
}

# get_compose gets Compose v2 of the packages of the next Debian, which this one has not, into the cache.
get_compose() {
  local lists=$dir/apt mirror
  mkdir -p "$lists"/{lists/partial,archives/partial}
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
  [[ -n $mirror ]] || return
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$lists/sources"
  local -a apt=(apt-get -qq -o "Dir::Etc::sourcelist=$lists/sources" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$lists/lists"
    -o "Dir::Cache=$lists" -o APT::Sandbox::User=root)
  "${apt[@]}" update >/dev/null 2>&1 &&
    (cd "$dir" && "${apt[@]}" download docker-compose >/dev/null 2>&1) &&
    mkdir -p "$cache/cli-plugins" &&
    dpkg-deb --fsys-tarfile "$dir"/docker-compose_*.deb |
    tar -x -C "$cache/cli-plugins" --strip-components=5 ./usr/libexec/docker/cli-plugins/docker-compose
}

if ! docker info >/dev/null 2>&1; then
  [[ $(uname) == Linux ]] && ((EUID == 0)) || leave_out "no engine runs here, and only root can start one"
  if ! have dockerd; then
    have apt-get || leave_out "no engine runs here, and there is no apt-get to install one"
    say "installing docker.io by apt-get"
    install_engine || leave_out "no engine runs here, and apt-get cannot install docker.io"
  fi
  start_engine || leave_out "the engine does not start here: $(tail -n 1 "$dir/log" | cut -c 1-300)"
fi
if ! docker compose version >/dev/null 2>&1; then
  export DOCKER_CONFIG=$cache
  if ! docker compose version >/dev/null 2>&1; then
    have apt-get || leave_out "there is no Compose v2 here"
    say "downloading Compose v2 by apt-get"
    get_compose && docker compose version >/dev/null 2>&1 || leave_out "there is no Compose v2 here, and apt-get cannot download it"
  fi
fi

probe >"$dir/probe.log" 2>&1 || leave_out "no container can run here: $(grep -v '^$' "$dir/probe.log" | tail -n 3 | tr '\n' ' ' | cut -c 1-400)"

scripts/docker-images.sh "$cache" || {
  status=$?
  ((status != 75)) || leave_out "the images cannot be had here"
  exit $status
}
say "building the images"
docker compose -f docker/compose.yaml --profile observability build --quiet worker-observability admin
say "running the tests"
go test -tags engine -count=1 -parallel 8 -timeout 15m -run '^(TestOrdersSurvive|TestContainers|TestImagesAre)' ./docker
