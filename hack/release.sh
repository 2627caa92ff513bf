#!/usr/bin/env bash
# Makes a release, VERSION (v1.2.3), in bin/release/VERSION: images, manifests, the chart, and what proves where they
# come from. The same commit gives the same bytes: a second run compares.
#   hack/release.sh VERSION
# REGISTRY is where the image will be, by default example.com, MEMCACHED_IMG the members' image, best by its digest
# (docker.io/library/memcached@sha256:…), and DOWNLOADS where the plugin's archives will be
# (hack/plugin.sh). If COSIGN_KEY is set, cosign signs the checksums. KUSTOMIZE and SYFT are the tools' paths: make release
# sets them.
set -euo pipefail

version=$1
cd "$(dirname "$0")/.."
[[ $version =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$ ]] || { echo "release: VERSION=$version is not like v1.2.3 or v1.2.3-rc.1" >&2; exit 2; }
[ -z "$(git status --porcelain)" ] || { echo "release: the tree has changes: commit them, or remove them" >&2; exit 2; }

name=memcached-operator
image=${REGISTRY:-example.com}/$name:$version
commit=$(git rev-parse HEAD)
out=bin/release/$version
if [ -e "$out/commit" ] && [ "$(cat "$out/commit")" != "$commit" ]; then
  echo "release: $out is of commit $(cat "$out/commit"): choose another VERSION, or remove that folder" >&2
  exit 2
fi
if tagged=$(git rev-parse --quiet --verify "$version^{commit}") && [ "$tagged" != "$commit" ]; then
  echo "release: the tag $version is of commit $tagged, and HEAD is $commit" >&2
  exit 2
fi
SOURCE_DATE_EPOCH=$(git show --no-patch --format=%ct HEAD)
date=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
# What would make other bytes on another machine.
umask 022
unset GOAMD64 GOARM64 GOEXPERIMENT
export SOURCE_DATE_EPOCH CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off LC_ALL=C

work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
new=$work/release
mkdir "$new"

echo "programs for linux/amd64 and linux/arm64"
for arch in amd64 arm64; do
  for program in manager drainer; do
    GOOS=linux GOARCH=$arch go build -buildvcs=false -o "$work/bin/linux-$arch/$program" -ldflags \
      "-s -w -X example.com/memcached-operator/version.Version=$version -X example.com/memcached-operator/version.Commit=$commit" "./cmd/$program"
  done
done

echo "plugin of kubectl"
hack/plugin.sh "$version" "$new"

echo "image $image"
digest=$(bin/image layout --name="$image" --binaries="$work/bin" --output="$new/$name-$version.oci.tar")
pinned=${image%:*}@$digest

echo "manifests and chart"
for of in default:install namespaced:install-namespaced; do
  # kustomize takes only relative paths of a folder two levels deep.
  rm -rf bin/release-manifests
  CONFIG=${of%%:*} hack/overlay.sh bin/release-manifests "$pinned" "${MEMCACHED_IMG:-}"
  "$KUSTOMIZE" build bin/release-manifests >"$new/${of##*:}.yaml"
done
rm -rf bin/release-manifests
bin/image chart --name="$image" --digest="$digest" --memcached="${MEMCACHED_IMG:-}" --version="$version" --chart=charts/$name --output="$new/$name-${version#v}.tgz"
bin/image chart-layout --chart="$new/$name-${version#v}.tgz" --output="$new/$name-chart-$version.oci.tar" >"$work/chart-digest"

echo "OLM bundle"
bin/bundle --version="$version" --created="$date" "$new/install.yaml" "$work/bundle"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw -C "$work" -cf "$new/$name-bundle-$version.tar" bundle

echo "bill of materials"
for arch in amd64 arm64; do
  "$SYFT" scan --quiet --platform "linux/$arch" "oci-archive:$new/$name-$version.oci.tar" --source-name="$name" --source-version="$version" \
    --output "spdx-json=$work/$arch.json"
  # What is of this run alone: its time, and a random name.
  sed --regexp-extended -e "s|(\"created\": *\")[^\"]*|\1$date|" \
    -e "s|(\"documentNamespace\": *\")[^\"]*|\1https://example.com/$name/$version/$arch/$commit|" "$work/$arch.json" >"$new/$name-$version-$arch.spdx.json"
done

echo "notes"
before=$(git describe --tags --abbrev=0 --match='v*' "HEAD^" 2>/dev/null || true)
{
  echo "# $name $version"
  echo
  echo "Image: \`$pinned\`"
  echo
  echo "Changes${before:+ since $before}:"
  echo
  git log --no-merges --format='- %s (%H)' ${before:+"$before.."}HEAD
} >"$new/NOTES.md"

subjects=$(cd "$new" && sha256sum -- *.tar *.tgz *.tar.gz *.yaml | awk '{printf "%s{\"name\": \"%s\", \"digest\": {\"sha256\": \"%s\"}}", (NR > 1 ? ",\n    " : ""), $2, $1}')
members=${MEMCACHED_IMG:+", \"membersImage\": \"$MEMCACHED_IMG\""}
# https://slsa.dev/spec/v1.0/provenance, in a statement of https://in-toto.io/Statement/v1.
cat >"$new/provenance.intoto.json" <<EOF
{
  "_type": "https://in-toto.io/Statement/v1",
  "subject": [
    $subjects
  ],
  "predicateType": "https://slsa.dev/provenance/v1",
  "predicate": {
    "buildDefinition": {
      "buildType": "https://example.com/memcached-operator/hack/release.sh",
      "externalParameters": {"version": "$version", "image": "$image"$members},
      "internalParameters": {"go": "$(go env GOVERSION)"},
      "resolvedDependencies": [{"uri": "git+https://example.com/memcached-operator", "digest": {"gitCommit": "$commit"}}]
    },
    "runDetails": {"builder": {"id": "https://example.com/memcached-operator/make-release"}}
  }
}
EOF
(cd "$new" && sha256sum -- * >"$work/checksums.txt" && mv "$work/checksums.txt" .)

if [ -e "$out/commit" ]; then
  diff "$out/checksums.txt" "$new/checksums.txt" || { echo "release: a second run made other bytes than $out has" >&2; exit 1; }
  echo "the same bytes as before: $out"
else
  rm -rf "$out" # a run that was interrupted
  mkdir -p "$out"
  cp -r "$new/." "$out/"
  echo "$commit" >"$out/commit"
  cat "$out/checksums.txt"
fi
if [ -n "${COSIGN_KEY:-}" ] && [ ! -e "$out/checksums.txt.sigstore.json" ]; then
  cosign sign-blob --yes --key="$COSIGN_KEY" --bundle="$out/checksums.txt.sigstore.json" "$out/checksums.txt"
fi
