#!/usr/bin/env bash
# Installs what the tests need and the machine lacks: redis-server, etcd, PostgreSQL, PgBouncer, MariaDB, Prometheus,
# Chromium, and a C compiler for the race detector and for what steps the clocks of servers.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

# as_root runs a command with the rights to install packages.
as_root() {
  if ((EUID == 0)); then
    "$@"
  elif have sudo; then
    say "sudo $*"
    sudo "$@"
  else
    say "that takes root, and there is no sudo"
    return 1
  fi
}

# install_packages installs the packages named for the package manager at hand: apt-get dnf apk brew, "-" where there is none.
install_packages() {
  local apt=$1 dnf=$2 apk=$3 brew=$4
  local -a names
  if have apt-get; then
    read -ra names <<<"$apt"
    say "installing ${names[*]} by apt-get"
    as_root apt-get update -qq >/dev/null &&
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${names[@]}" >/dev/null
  elif have dnf; then
    read -ra names <<<"$dnf"
    say "installing ${names[*]} by dnf"
    as_root dnf install -y -q "${names[@]}" >/dev/null
  elif have apk; then
    read -ra names <<<"$apk"
    say "installing ${names[*]} by apk"
    as_root apk add --quiet "${names[@]}" >/dev/null
  elif have brew && [[ $brew != - ]]; then
    read -ra names <<<"$brew"
    say "installing ${names[*]} by brew"
    brew install --quiet "${names[@]}" >/dev/null
  else
    return 1
  fi
}

# compiles_c tells whether the C compiler that Go would use finds its headers.
compiles_c() {
  local -a cc
  read -ra cc <<<"$(go env CC)"
  printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | "${cc[@]}" -x c -fsyntax-only - >/dev/null 2>&1
}

if ! have redis-server; then
  say "the tests start redis-server processes of their own, and there is no redis-server here"
  install_packages redis-server redis redis redis || true
  hash -r
  have redis-server ||
    fail "cannot install redis-server. Install it by hand (Debian: apt-get install redis-server; Fedora: dnf install redis;" \
      "Alpine: apk add redis; macOS: brew install redis) and run \"make test\" again."
fi

if ! have etcd; then
  say "the tests of etcdlock and of the benchmark start etcd processes of their own, and there is no etcd here"
  install_packages etcd-server etcd etcd etcd || true
  hash -r
  have etcd ||
    fail "cannot install etcd. Install it by hand (Debian: apt-get install etcd-server; Fedora: dnf install etcd;" \
      "Alpine: apk add etcd; macOS: brew install etcd) and run \"make test\" again."
fi

if ! has_postgres; then
  say "the tests start PostgreSQL servers of their own, and there is none here"
  install_packages postgresql "postgresql-server postgresql" postgresql postgresql || true
  hash -r
  has_postgres ||
    fail "cannot install PostgreSQL. Install it by hand (Debian: apt-get install postgresql; Fedora: dnf install postgresql-server;" \
      "Alpine: apk add postgresql; macOS: brew install postgresql) and run \"make test\" again."
fi

if ! have pgbouncer && [[ ! -x /usr/sbin/pgbouncer ]]; then
  say "the tests start PgBouncer processes of their own, and there is no pgbouncer here"
  install_packages pgbouncer pgbouncer pgbouncer pgbouncer || true
  hash -r
  have pgbouncer || [[ -x /usr/sbin/pgbouncer ]] ||
    fail "cannot install PgBouncer. Install it by hand (Debian: apt-get install pgbouncer; Fedora: dnf install pgbouncer;" \
      "Alpine: apk add pgbouncer; macOS: brew install pgbouncer) and run \"make test\" again."
fi

if ! have mariadbd && [[ ! -x /usr/sbin/mariadbd ]]; then
  say "the tests start MariaDB servers of their own, and there is none here"
  install_packages mariadb-server mariadb-server "mariadb mariadb-client" mariadb || true
  hash -r
  have mariadbd || [[ -x /usr/sbin/mariadbd ]] ||
    fail "cannot install MariaDB. Install it by hand (Debian: apt-get install mariadb-server; Fedora: dnf install mariadb-server;" \
      "Alpine: apk add mariadb mariadb-client; macOS: brew install mariadb) and run \"make test\" again."
fi

if ! have prometheus || ! have promtool; then
  say "the tests of metrics/prometheus start a Prometheus of their own, and there is none here"
  install_packages prometheus golang-github-prometheus prometheus prometheus || true
  hash -r
  if have systemctl; then
    as_root systemctl disable --now --quiet prometheus >/dev/null 2>&1 || true # the package starts it
  fi
  { have prometheus && have promtool; } ||
    fail "cannot install Prometheus. Install it by hand (Debian: apt-get install prometheus; Fedora: dnf install" \
      "golang-github-prometheus; Alpine: apk add prometheus; macOS: brew install prometheus) and run \"make test\" again."
fi

if ! have chromium-headless-shell && ! have chromium && ! have chromium-browser && ! have google-chrome; then
  say "the tests of inspect/admin/browser open the admin page in Chromium, and there is none here"
  install_packages chromium-headless-shell chromium-headless chromium - || install_packages chromium chromium chromium - || true
  hash -r
  have chromium-headless-shell || have chromium || have chromium-browser || have google-chrome ||
    fail "cannot install Chromium. Install it by hand (Debian: apt-get install chromium; Fedora: dnf install chromium;" \
      "Alpine: apk add chromium; macOS: brew install --cask google-chrome) and run \"make test\" again."
fi

if ! compiles_c; then
  say "the race detector and the tests of internal/verify/chaos need a C compiler, and \"$(go env CC)\" does not work here"
  install_packages "gcc libc6-dev" "gcc glibc-devel" "gcc musl-dev" - || true
  hash -r
  compiles_c ||
    fail "cannot install a C compiler. Install one by hand (Debian: apt-get install gcc libc6-dev; Fedora: dnf install gcc;" \
      "Alpine: apk add gcc musl-dev; macOS: xcode-select --install) and run \"make test\" again."
fi
