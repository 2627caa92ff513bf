#!/usr/bin/env bash
# Shows that a cluster leaves nothing on this machine:
#
#   hack/machine-state.sh save FILE      before make cluster-up, with no cluster up
#   hack/machine-state.sh compare FILE   after make cluster-down
#
# Network links, mounts and packet filter rules must be as before, and so must processes
# with the names that a cluster runs.
set -euo pipefail

names='etcd|k8s|kube-.*|kubelet|coredns|provisioner|containerd.*|runc|pause|cluster|memcached|manager|drainer'

state() {
  echo "# ip link"
  ip -o link | awk -F': ' '{sub(/@.*/, "", $2); print $2}' | sort
  echo "# mount"
  awk '{print $2, $3}' /proc/mounts | sort
  for table in filter nat mangle; do
    echo "# iptables -t $table -S"
    # Without counters, and in their order, which matters.
    iptables -t "$table" -S 2>/dev/null || true
  done
  echo "# ip netns"
  ip netns list | sort
  echo "# ps"
  ps -eo comm= | grep -xE "$names" | sort || true
}

case "${1:-} ${2:-}" in
"save "?*) state >"$2" ;;
"compare "?*)
  # A process that was told to end may take a moment.
  for _ in $(seq 20); do
    left=$(diff "$2" <(state) || true)
    [ -n "$left" ] || { echo "The machine is as it was: links, mounts, packet filter, processes."; exit 0; }
    sleep 0.5
  done
  echo "The machine is not as it was (<: before, >: now):"
  echo "$left"
  exit 1
  ;;
*)
  echo "usage: $0 save|compare FILE" >&2
  exit 2
  ;;
esac
