#!/usr/bin/env bash
# Gets a server that this system does not have, and prints the path of a launcher that takes the arguments of redis-server:
# scripts/server.sh SUITE PACKAGE TOOLS, such as trixie valkey-server valkey-tools
#
# It asks the Debian mirror that this system uses, with lists of its own, and installs nothing: the packages are unpacked below .bin/servers,
# and the server runs with the C library that came with it. The system and its package lists stay as they are.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

(($# == 3)) || fail "say which server: scripts/server.sh SUITE PACKAGE TOOLS"
suite=$1 package=$2 tools=$3
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
dir=$PWD/.bin/servers/$package-$suite
launcher=$dir/redis-server
if [[ -x $launcher ]]; then
  printf '%s\n' "$launcher"
  exit
fi

{ have apt-get && have dpkg && [[ -e $keyring ]]; } || fail "no Debian system, so $package of $suite cannot be had"
# shellcheck disable=SC2016 # apt-get expands it
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' | grep -v security | sort -u | head -n 1)
[[ $mirror ]] || fail "this system names no Debian mirror; run apt-get update first"

rm -rf "$dir"
mkdir -p "$dir"/{lists/partial,cache/archives/partial,debs,root}
for one in "$suite" ${suite/%*-backports/${suite%-backports}}; do
  [[ $one == "$suite" && -s $dir/sources.list ]] || printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$one" >>"$dir/sources.list"
done
cat >"$dir/apt.conf" <<CONF
Dir::Etc::SourceList "$dir/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$dir/lists";
Dir::State::status "/dev/null";
Dir::Cache "$dir/cache";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
CONF
export APT_CONFIG=$dir/apt.conf
say "getting $package of $suite"
apt-get update -qq >&2 || fail "the lists of $suite cannot be had"
# The libraries that the server needs, whatever else its packages want installed.
mapfile -t libraries < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$tools" |
  grep -E '^lib' | grep -vE '^lib(pam|systemd-shared|semanage|debian|newt|slang|textwrap|audit|db|blkid|mount)' | sort -u)
(cd "$dir/debs" && apt-get download -qq "$package" "$tools" "${libraries[@]}" >&2) || fail "$package of $suite cannot be had"
for deb in "$dir"/debs/*.deb; do
  dpkg -x "$deb" "$dir/root"
done

# The server is the same program as its tools, which look at the name that they are called by.
name=${package%-server}
loader=$(find "$dir/root" -name 'ld-linux-*.so.*' | sort | head -n 1)
program=$dir/root/usr/bin/$name-check-rdb
{ [[ $loader ]] && [[ -x $program ]]; } || fail "$package of $suite has no server for this machine"
libs=$(find "$dir/root" -name '*.so.*' -printf '%h\n' | grep -E '/lib/[^/]*-linux-gnu$' | grep -v /gdb/ | sort -u | paste -sd:)
cat >"$launcher.new" <<LAUNCHER
#!/bin/sh
exec '$loader' --argv0 '$name-server' --library-path '$libs' '$program' "\$@"
LAUNCHER
chmod +x "$launcher.new"
"$launcher.new" --version >&2 || fail "$package of $suite does not start here"
mv "$launcher.new" "$launcher"
rm -rf "$dir/debs" "$dir/cache" "$dir/lists"
printf '%s\n' "$launcher"
