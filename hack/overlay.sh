#!/usr/bin/env bash
# Writes a kustomize overlay of config/default, or of another folder CONFIG of config/, into a folder of this project:
#   [CONFIG=namespaced] hack/overlay.sh FOLDER OPERATOR_IMAGE [MEMCACHED_IMAGE [CONTENT]]
# The folder is relative to the project, two levels deep (bin/deploy). CONTENT is a checksum of what is
# behind the operator's tag: the operator is replaced if it changes.
set -euo pipefail

folder=$1 image=$2 memcached=${3:-} content=${4:-}
cd "$(dirname "$0")/.."
mkdir -p "$folder/image"

# NAME[:TAG|@DIGEST], where NAME may have a registry's port.
rest=${image##*/}
case $rest in
  *@*) name=${image%@*} version="digest: ${image##*@}" ;;
  *:*) name=${image%:*} version="newTag: \"${image##*:}\"" ;;
  *) name=$image version='newTag: latest' ;;
esac

cat >"$folder/image/kustomization.yaml" <<EOF
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
images:
  - name: controller
    newName: $name
    $version
EOF

{
  echo "resources: [../../config/${CONFIG:-default}]"
  echo 'components: [image, ../../config/components/own-names]'
  if [ -n "$memcached" ]; then
    cat <<EOF
patches:
  - target: {kind: Deployment, name: memcached-operator-manager}
    patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: memcached-operator-manager}
      spec:
        template:
          ${content:+metadata: {annotations: {example.com/image-content: "$content"\}\}}
          spec:
            containers:
              - name: manager
                env:
                  - {name: MEMCACHED_IMAGE, value: "$memcached"}
EOF
  fi
} >"$folder/kustomization.yaml"
