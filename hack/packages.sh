#!/usr/bin/env bash
# Installs the Debian packages that are missing, and says which:
#   hack/packages.sh PACKAGE…
set -euo pipefail

missing=()
for package in "$@"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing+=("$package")
done
[ ${#missing[@]} = 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Install these packages first: ${missing[*]} (only root on Debian can have it done for them)." >&2
  exit 1
fi
echo "Installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }
install 2>/dev/null || { apt-get update -qq && install; }
