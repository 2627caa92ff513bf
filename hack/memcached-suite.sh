#!/usr/bin/env bash
# Fetches Debian's memcached of another suite, with the libraries that it needs, into a folder, and
# installs nothing:
#   hack/memcached-suite.sh FOLDER SUITE
# FOLDER/memcached runs it. bullseye has 1.6.9, bookworm 1.6.18, trixie 1.6.38, unstable 1.6.45 or
# later; the last two have memcached's own proxy.
set -euo pipefail

folder=$1 suite=$2
[ -x "$folder/memcached" ] && exit 0
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
sites=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null || true)
read -r site _ <<<"$sites"
echo "deb [trusted=yes] $site $suite main" >"$apt/sources.list"
options=(-qq -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$apt/lists"
  -o Dir::Cache::archives="$apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
  -o Dir::State::status=/dev/null -o APT::Sandbox::User=root -o Acquire::Languages=none)
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --download-only --no-install-recommends memcached
for package in "$apt"/archives/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
rm -rf "$apt"
# In older suites the loader's usual name is a link to ld-VERSION.so.
loader=$(find "$folder/root" -name 'ld-linux-*.so.*' -type f)
[ -n "$loader" ] || loader=$(find "$folder/root" -name 'ld-[0-9]*.so' -type f)
read -r loader <<<"$loader"
libraries=$(find "$folder/root" -name 'libevent-2*.so*' -printf '%h:' -quit)
printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$loader" "$libraries$(dirname "$loader")" "$folder/root/usr/bin/memcached" >"$folder/memcached"
chmod +x "$folder/memcached"
"$folder/memcached" -V
