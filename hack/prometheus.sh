#!/usr/bin/env bash
# Prints the path of a program of Prometheus', prometheus or promtool: the one of Debian's package prometheus,
# unpacked beside the other tools. The package isn't installed, as that would start a server:
#   hack/prometheus.sh FOLDER PROGRAM
# Of promtool, the one on the PATH is taken, if there is one.
set -euo pipefail

folder=$1 program=$2
if [ "$program" = promtool ] && command -v promtool; then exit 0; fi
if [ ! -x "$folder/usr/bin/$program" ]; then
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
    echo "Install Prometheus first (only on Debian can it be fetched here)." >&2
    exit 1
  }
  rm -rf "$folder.new" && mkdir -p "$folder.new/root"
  cd "$folder.new"
  echo "Fetching Debian's package prometheus" >&2
  # A package of an older index may be gone: then the index is fetched anew.
  apt-get download -qq prometheus >&2 2>/dev/null || { apt-get update -qq >&2 && apt-get download -qq prometheus >&2; }
  dpkg-deb -x prometheus_*.deb root
  mkdir -p "$folder/usr/bin"
  mv root/usr/bin/prometheus root/usr/bin/promtool "$folder/usr/bin/"
  cd - >/dev/null
  rm -rf "$folder.new"
fi
echo "$folder/usr/bin/$program"
