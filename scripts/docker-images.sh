#!/usr/bin/env bash
# Puts the images that docker/ names into the engine: from the registry, or made of what this machine has where there is no registry.
# scripts/docker-test.sh calls it with the folder of the cache. With "shell" as well it only gets the shell of those images into
# the cache. It ends with 75 when something that they are made of cannot be had.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cache=$1

cannot_have() {
  say "cannot get $*"
  exit 75
}

# get_shell gets a static shell of the system's packages into the cache.
get_shell() {
  [[ ! -x $cache/busybox ]] || return 0
  have apt-get || cannot_have "a shell for the images: there is no apt-get"
  say "downloading busybox-static by apt-get"
  (cd "$cache" && apt-get download -qq busybox-static >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null 2>&1 && apt-get download -qq busybox-static >/dev/null 2>&1; }) ||
    cannot_have "busybox-static by apt-get"
  dpkg-deb --fsys-tarfile "$cache"/busybox-static_*.deb | tar -x -C "$cache" --strip-components=2 ./bin/busybox
  rm -f "$cache"/busybox-static_*.deb
}

# image_of prints the image of a kind that a file names.
image_of() { grep -ohE "(FROM|image:) +$1:[a-z0-9.-]+" "$2" | grep -oE "$1:.*" | head -1; }
golang=$(image_of golang docker/Dockerfile)
redis=$(image_of redis docker/compose.yaml)
prometheus=$(image_of prom/prometheus docker/compose.yaml)
grafana=$(image_of grafana/grafana docker/compose.yaml)

# has_image tells whether the engine has an image already.
has_image() { docker image inspect "$1" >/dev/null 2>&1; }

# copy_program copies a program and the libraries that it loads into a folder.
copy_program() {
  local program file
  program=$(readlink -f "$(command -v "$1")")
  install -D "$program" "$2/usr/bin/$1"
  while IFS= read -r file; do
    install -D "$(readlink -f "$file")" "$2$file"
  done < <(ldd "$program" 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*')
}

# new_root makes a folder with a shell in it: busybox, from the system's packages.
new_root() {
  local root=$1 name
  mkdir -p "$root"/{bin,usr/bin,etc,tmp,root,data}
  chmod 1777 "$root/tmp"
  get_shell
  for name in $("$cache/busybox" --list); do
    ln -s busybox "$root/bin/$name"
  done
  rm "$root/bin/busybox" # it lists itself
  install "$cache/busybox" "$root/bin/busybox"
}

# golang_root fills a folder with Go, the certificates, and the modules of the programs.
golang_root() {
  local root=$1 goroot
  goroot=$(go env GOROOT)
  new_root "$root"
  install -D /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  mkdir -p "$root/usr/local/go/pkg"
  cp -r "$goroot"/{bin,src,VERSION,go.env} "$root/usr/local/go/"
  cp -r "$goroot"/pkg/{tool,include} "$root/usr/local/go/pkg/"
  local module
  for module in examples cmd/railtoken; do
    # As the Dockerfile does it: the root is that of this tree.
    cp "$module/go.mod" "$root/this.mod"
    cp "$module/go.sum" "$root/this.sum"
    go mod edit -replace=github.com/railtoken/railtoken="$PWD" "$root/this.mod"
    (cd "$module" && GOWORK=off GOFLAGS="-modcacherw -modfile=$root/this.mod" GOMODCACHE="$root/modules" \
      GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" go mod download) ||
      cannot_have "the modules of $module"
  done
  mv "$root/modules/cache/download" "$root/proxy"
  rm -rf "$root/modules" "$root"/this.*
}

# redis_root fills a folder with the redis-server of the system's packages.
redis_root() {
  local root=$1 name
  new_root "$root"
  for name in redis-server redis-cli getent; do
    copy_program "$name" "$root"
  done
  # The servers of the real image have their protected mode off by default.
  mv "$root/usr/bin/redis-server" "$root/usr/bin/redis-sentinel"
  printf '#!/bin/sh\nexec /usr/bin/redis-server-of-the-system "$@" --protected-mode no\n' >"$root/usr/bin/redis-server"
  ln "$root/usr/bin/redis-sentinel" "$root/usr/bin/redis-server-of-the-system"
  chmod 755 "$root/usr/bin/redis-server"
  printf 'root:x:0:0::/root:/bin/sh\nredis:x:999:999::/data:/bin/sh\n' >"$root/etc/passwd"
  chown -R 999:999 "$root/data"
}

# prometheus_root fills a folder with the Prometheus of the system's packages.
prometheus_root() {
  local root=$1
  new_root "$root"
  copy_program prometheus "$root"
  mkdir -p "$root"/{prometheus,etc/prometheus}
  printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
  chown 65534:65534 "$root/prometheus"
}

# stand_in makes an image under a name of a folder that a function fills; the rest is changes as in a Dockerfile.
stand_in() {
  local image=$1 fill=$2 root change
  local -a changes=()
  has_image "$image" && return
  shift 2
  for change in "$@"; do
    changes+=(--change "$change")
  done
  root=$(mktemp -d "$cache/root.XXXXXX")
  "$fill" "$root"
  say "no registry is in reach: $image is made of this machine's packages"
  tar -C "$root" -c . | docker import "${changes[@]}" - "$image" >/dev/null
  rm -rf "$root"
}

if [[ ${2:-} == shell ]]; then
  get_shell
  exit
fi
if has_image "$golang" && has_image "$redis" && has_image "$prometheus" && has_image "$grafana"; then
  exit
fi
# The smallest image shows whether a registry is in reach.
if timeout 30 docker pull -q "$redis" >/dev/null 2>&1 && docker pull -q "$golang" >/dev/null && docker pull -q "$prometheus" >/dev/null; then
  docker pull -q "$grafana" >/dev/null || say "cannot get $grafana: its test is left out"
  exit
fi
scripts/test-deps.sh || cannot_have "the redis-server and the Prometheus of this machine"
stand_in "$golang" golang_root 'ENV PATH=/usr/local/go/bin:/usr/bin:/bin' 'ENV GOPATH=/go' 'ENV HOME=/root' \
  "ENV GOPROXY=file:///proxy,$(go env GOPROXY)"
stand_in "$prometheus" prometheus_root 'USER 65534:65534' 'WORKDIR /prometheus' 'VOLUME /prometheus' 'ENV PATH=/usr/bin:/bin' \
  'ENTRYPOINT ["/usr/bin/prometheus"]' 'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]'
has_image "$grafana" || say "no registry is in reach: there are no packages to make $grafana of, so its test is left out"
stand_in "$redis" redis_root 'ENV PATH=/usr/bin:/bin' 'WORKDIR /data' 'VOLUME /data' 'USER redis' 'CMD ["redis-server"]'
