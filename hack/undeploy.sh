#!/usr/bin/env bash
# Removes the operator of an overlay, every Memcached and StatefulSetDrain, and their
# finalizers from the cluster in KUBECONFIG:
#   hack/undeploy.sh OVERLAY MANAGER
# OVERLAY is a kustomize folder as `make deploy` applied it, MANAGER the program.
#
# The running operator removes the finalizers itself. If it can't (it crashes, or was
# deleted before), `manager uninstall` does. Claims stay, if spec.drain.whenDeleted says
# so, and every item with them.
set -euo pipefail

overlay=$1 manager=$2
kubectl=${KUBECTL:-kubectl}
wait=${UNDEPLOY_WAIT:-60s}

# NAMESPACE/NAME of the overlay's Deployment.
deployment=$("$kubectl" kustomize "$overlay" | awk '
  /^---/ {kind = name = namespace = ""}
  /^kind:/ {kind = $2}
  /^  name:/ {name = $2}
  /^  namespace:/ {namespace = $2}
  kind == "Deployment" && name && namespace && !found {found = namespace "/" name}
  END {print found}')

"$manager" uninstall --deployment="$deployment" --memcacheds=Delete --timeout="$wait"
# The overlay has the CRDs, and every object of their kinds goes with them.
for kind in Memcacheds StatefulSetDrains; do
  if left=$("$kubectl" get "${kind,,}.cache.example.com" --all-namespaces --no-headers 2>/dev/null) && [[ -n $left ]]; then
    printf '%s are left, so the CRDs and the rest of %s stay:\n%s\n' "$kind" "$overlay" "$left" >&2
    exit 1
  fi
done
"$kubectl" delete -k "$overlay" --ignore-not-found --timeout="$wait"
