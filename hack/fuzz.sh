#!/usr/bin/env bash
# Runs every fuzz test of the drainer for a short while: fuzz.sh [TIME].
set -euo pipefail
time=${1:-2s}
for file in $(grep -rl --include='*_test.go' '^func Fuzz' drainer); do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9]+)\(.*/\1/p' "$file"); do
    go test "./$(dirname "$file")" -run='^$' -fuzz="^$target\$" -fuzztime="$time" -parallel=2
  done
done
