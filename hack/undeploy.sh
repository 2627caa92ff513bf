#!/usr/bin/env bash
# Takes the operator out of the cluster in KUBECONFIG and leaves no finalizer
# behind: hack/undeploy.sh OVERLAY
#
# The running operator lets go of everything itself. Where it can't (it crashes,
# or was deleted before), the finalizers are taken off here. Claims stay, under
# spec.drain.whenDeleted, and with them every item.
set -euo pipefail

overlay=$1
kubectl=${KUBECTL:-kubectl}
wait=${UNDEPLOY_WAIT:-60s}
namespace=memcached-operator-system
manager=deployment/memcached-operator-controller-manager
crd=memcacheds.cache.example.com
selector=app.kubernetes.io/managed-by=memcached-operator

# Takes one finalizer off one object, whatever else is on it.
remove_finalizer() { # kind namespace name finalizer
  local rest
  rest=$("$kubectl" get "$1" -n "$2" "$3" --ignore-not-found \
    -o jsonpath='{range .metadata.finalizers[*]}{@}{"\n"}{end}' |
    { grep -vx "$4" || true; } | awk '{printf "%s\"%s\"", (NR > 1 ? "," : ""), $0}')
  "$kubectl" patch "$1" -n "$2" "$3" --type=merge -p "{\"metadata\":{\"finalizers\":[$rest]}}"
}

if "$kubectl" get crd "$crd" >/dev/null 2>&1; then
  echo "Deleting all Memcached clusters; their claims stay unless spec.drain.whenDeleted is Delete."
  "$kubectl" delete memcacheds --all --all-namespaces --timeout="$wait" ||
    echo "The operator did not let go of all of them within $wait: taking the finalizers off."
fi

# From here on nobody puts a finalizer back.
"$kubectl" delete -n "$namespace" "$manager" --ignore-not-found --timeout="$wait"

if "$kubectl" get crd "$crd" >/dev/null 2>&1; then
  "$kubectl" get memcacheds -A -o jsonpath='{range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}' |
    while read -r ns name; do remove_finalizer memcached "$ns" "$name" cache.example.com/cluster; done
fi
"$kubectl" get pvc -A -l "$selector" \
  -o jsonpath='{range .items[*]}{.metadata.namespace} {.metadata.name} {.metadata.finalizers}{"\n"}{end}' |
  { grep -F cache.example.com/drain || true; } |
  while read -r ns name _; do remove_finalizer pvc "$ns" "$name" cache.example.com/drain; done

"$kubectl" delete -k "$overlay" --ignore-not-found --timeout="$wait"

kept=$("$kubectl" get pvc -A -l "$selector" -o name | wc -l)
[ "$kept" = 0 ] || echo "$kept claims are kept: kubectl get pvc -A -l $selector"
