#!/usr/bin/env bash
# Builds the memcached of a Debian suite with 64-bit client flags, which no suite has, into a folder, and installs
# nothing:
#   hack/memcached-large.sh FOLDER SUITE
# Needs gcc, make and libevent's headers.
set -euo pipefail

folder=$1 suite=$2
[ -x "$folder/memcached" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial"
cd "$folder"
sites=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null || true)
read -r site _ <<<"$sites"
echo "deb-src [trusted=yes] $site $suite main" >apt/sources.list
options=(-qq -o Dir::Etc::sourcelist="$PWD/apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$PWD/apt/lists"
  -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
apt-get "${options[@]}" source --download-only memcached
tar xf memcached_*.orig.tar.*
(cd memcached-*/ && ./configure --quiet --enable-option-checking=fatal --enable-large-client-flags --disable-docs && env -u MAKEFLAGS -u MAKELEVEL make --silent memcached) >build.log 2>&1 || {
  tail -20 build.log >&2
  exit 1
}
mv memcached-*/memcached .
rm -rf apt memcached-*/ memcached_*
./memcached -V
