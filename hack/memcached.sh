#!/usr/bin/env bash
# Builds a version of memcached that has no package:
#   memcached.sh VERSION FILE [CONFIGURE ARGUMENT…]
# MEMCACHED_GIT is the repository, a URL or a directory.
set -euo pipefail
version=$1 file=$(realpath -m "$2")
shift 2
git=${MEMCACHED_GIT:-https://github.com/memcached/memcached}
[ -x "$file" ] && exit 0

"$(dirname "$0")"/packages.sh git libevent-dev autoconf automake gcc libc6-dev make perl
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git -c advice.detachedHead=false clone -q --depth=1 --branch="$version" "$git" "$source"
cd "$source"
# Upstream's script asks git for this, and a shallow copy doesn't know it.
echo "m4_define([VERSION_NUMBER], [$version])" >version.m4
: >version.pl
# Old sources and new compilers: without upstream's -Werror, and with the common
# definitions that gcc had by default until version 10.
{ ./autogen.sh && ./configure --disable-docs "$@" && make -j2 CFLAGS="-O2 -pthread -fcommon" memcached; } >build.log 2>&1 ||
  { tail -n 20 build.log >&2; exit 1; }
install -D memcached "$file"
