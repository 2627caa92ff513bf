#!/usr/bin/env bash
# Makes the archives of the kubectl plugin, and the manifest by which krew installs it: kubectl krew install --manifest=mc.yaml.
#   hack/plugin.sh VERSION FOLDER
# DOWNLOADS is the address where the archives will be. Bytes depend on the commit, VERSION and DOWNLOADS alone.
set -euo pipefail

version=$1
out=$(realpath "$2")
cd "$(dirname "$0")/.."
commit=$(git rev-parse HEAD)
epoch=$(git show --no-patch --format=%ct HEAD)
downloads=${DOWNLOADS:-https://example.com/memcached-operator/releases/$version}
work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
export CGO_ENABLED=0 GOFLAGS=-trimpath

cat >"$work/mc.yaml" <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: mc
spec:
  version: $version
  homepage: https://example.com/memcached-operator
  shortDescription: See what a scaling of a memcached cluster costs, and watch it
  description: |
    Shows clusters of the memcached-operator as one screen, says what a change would do before it
    does, and tells the operator what you want.
  platforms:
END
for platform in ${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}; do
  os=${platform%/*} arch=${platform#*/} program=kubectl-mc
  [ "$os" != windows ] || program+=.exe
  rm -rf "$work/files"
  mkdir "$work/files"
  GOOS=$os GOARCH=$arch go build -buildvcs=false -o "$work/files/$program" -ldflags \
    "-s -w -X example.com/memcached-operator/version.Version=$version -X example.com/memcached-operator/version.Commit=$commit" ./cmd/kubectl-mc
  cp LICENSE "$work/files/"
  archive=kubectl-mc-$version-$os-$arch.tar.gz
  tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw -C "$work/files" -c . | gzip --no-name >"$out/$archive"
  cat >>"$work/mc.yaml" <<END
    - selector: {matchLabels: {os: $os, arch: $arch}}
      uri: $downloads/$archive
      sha256: $(sha256sum "$out/$archive" | cut --characters=1-64)
      bin: $program
END
done
mv "$work/mc.yaml" "$out/mc.yaml"
