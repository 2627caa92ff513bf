#!/usr/bin/env bash
# Fetches Debian's memcached of another suite, which has memcached's own proxy, with the libraries
# that it needs, into a folder, and installs nothing:
#   hack/memcached-proxy.sh FOLDER [SUITE]
# FOLDER/memcached runs it. Only the benchmark of the router needs it.
set -euo pipefail

folder=$1 suite=${2:-unstable}
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
  -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --download-only --no-install-recommends memcached
for package in "$apt"/archives/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
rm -rf "$apt"
loader=$(find "$folder/root" -name 'ld-linux-*.so.2' -type f)
printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$loader" "$(dirname "$loader")" "$folder/root/usr/bin/memcached" >"$folder/memcached"
chmod +x "$folder/memcached"
"$folder/memcached" -V
