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
engine= # of this script
job=    # what it waits for
policy=/usr/sbin/policy-rc.d

# apart runs a command in a process group of its own, so that it is ended by end alone. The kernel ends it if this script is killed.
apart() {
  local -a how=()
  ! have setpriv || how+=(setpriv --pdeathsig TERM)
  ! have setsid || how+=(setsid)
  exec "${how[@]}" "$@"
}

# await runs a command. A signal ends this script at once, not only when the command has ended.
await() {
  apart "$@" &
  job=$!
  local status=0
  wait "$job" || status=$?
  job=
  return "$status"
}

# end_job ends what runs still.
end_job() {
  [[ -n $job ]] || return 0
  kill -- "-$job" 2>/dev/null || kill "$job" 2>/dev/null || true
  wait "$job" 2>/dev/null || true
  job=
}

# remove_all removes what the tests have left in the engine, if they were interrupted.
remove_all() {
  local kind
  docker ps -aq --filter name=railtoken-test- | xargs -r docker rm -fv
  for kind in network volume; do
    docker "$kind" ls -q --filter name=railtoken-test- | xargs -r docker "$kind" rm
  done
}

# Settings of the kernel that the engine changes.
forwarding=(/proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/{all,default}/forwarding)

# traces prints the bridges and the groups of engines.
traces() {
  local trace
  for trace in /sys/class/net/* /sys/fs/cgroup{,/*}/docker; do
    if [[ -e $trace && ${trace##*/} =~ ^(docker|docker0|br-[0-9a-f]{12})$ ]]; then
      echo "$trace"
    fi
  done
}

# save_system remembers what the engine changes outside of its folder, and does not undo.
save_system() {
  local file
  traces >"$dir/traces"
  for file in "${forwarding[@]}"; do
    echo "$(cat "$file" 2>/dev/null) $file"
  done >"$dir/forwarding"
  iptables-save >"$dir/iptables" 2>/dev/null || true
  ip6tables-save >"$dir/ip6tables" 2>/dev/null || true
}

# restore_system undoes it.
restore_system() {
  local trace value file tables table mount
  while read -r trace; do
    case $trace in
      /sys/class/net/*) ip link delete "${trace##*/}" ;;
      *) find "$trace" -depth -type d -exec rmdir {} + ;;
    esac
  done < <(traces | grep -vxFf "$dir/traces")
  for tables in iptables ip6tables; do
    have "$tables-restore" || continue
    {
      cat "$dir/$tables"
      # A table that was not there before is emptied.
      for table in $("$tables-save" | grep '^\*' | grep -vxFf <(grep '^\*' "$dir/$tables")); do
        echo "$table"
        [[ $table != '*filter' ]] || echo ':FORWARD ACCEPT'
        echo COMMIT
      done
    } | "$tables-restore"
  done
  while read -r value file; do
    [[ $(cat "$file") == "$value" ]] || echo "$value" >"$file"
  done <"$dir/forwarding"
  # The network of a build that was interrupted.
  while read -r _ mount _; do
    [[ $mount != "$dir"/* ]] || umount -l "$mount"
  done </proc/mounts
}

# end ends what runs still, and removes all that was started and stored.
end() {
  trap '' INT TERM HUP
  end_job
  if [[ -n $engine || -e $dir/running ]]; then
    remove_all >/dev/null 2>&1 || true
  fi
  if [[ -n $engine ]]; then
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
    restore_system 2>/dev/null || true
  fi
  end_policy
  rm -rf "$dir" "$cache"/root.*
}
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# end_policy lets packages start their services again.
end_policy() {
  [[ ! -e $dir/policy ]] || rm -f "$policy" "$dir/policy"
}

# install_engine installs an engine, without starting its service.
install_engine() {
  await apt-get update -qq >/dev/null || return
  if [[ ! -e $policy ]]; then
    touch "$dir/policy"
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
  fi
  local status=0
  DEBIAN_FRONTEND=noninteractive await apt-get install -y -qq --no-install-recommends docker.io iptables >/dev/null 2>&1 || status=$?
  end_policy
  return $status
}

# start_engine starts an engine whose socket, data and log are in the folder.
start_engine() {
  export DOCKER_HOST=unix://$dir/docker.sock
  save_system
  # Not overlay2 where the folder is on an overlay itself: the engine finds that out.
  apart dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" --host "$DOCKER_HOST" >"$dir/log" 2>&1 &
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
  # shellcheck disable=SC2016 # apt-get expands it
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
  [[ -n $mirror ]] || return
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$lists/sources"
  local -a apt=(apt-get -qq -o "Dir::Etc::sourcelist=$lists/sources" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$lists/lists"
    -o "Dir::Cache=$lists" -o APT::Sandbox::User=root)
  await "${apt[@]}" update >/dev/null 2>&1 &&
    (cd "$dir" && "${apt[@]}" download docker-compose >/dev/null 2>&1) &&
    mkdir -p "$cache/cli-plugins" &&
    dpkg-deb --fsys-tarfile "$dir"/docker-compose_*.deb |
    tar -x -C "$cache/cli-plugins" --strip-components=5 ./usr/libexec/docker/cli-plugins/docker-compose
}

if ! docker info >/dev/null 2>&1; then
  [[ $(uname) == Linux && $EUID == 0 ]] || leave_out "no engine runs here, and only root can start one"
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
    { get_compose && docker compose version >/dev/null 2>&1; } || leave_out "there is no Compose v2 here, and apt-get cannot download it"
  fi
fi

probe >"$dir/probe.log" 2>&1 || leave_out "no container can run here: $(grep -v '^$' "$dir/probe.log" | tail -n 3 | tr '\n' ' ' | cut -c 1-400)"

status=0
await scripts/docker-images.sh "$cache" || status=$?
((status != 75)) || leave_out "the images cannot be had here"
((status == 0)) || exit "$status"
say "building the images, and running the tests"
compile_alike
touch "$dir/running"
# The tests end themselves 15 minutes after the build, which takes as long as the machine and its network need.
await go test -tags engine -vet=off -count=1 -parallel 8 -timeout 60m -run '^(TestOrdersSurvive|TestContainers|TestImagesAre)' ./docker
