#!/usr/bin/env bash
# Runs every fuzz test below some directories, each for that long: fuzz.sh TIME DIRECTORY…
set -euo pipefail
time=$1
shift
for file in $(grep -rl --include='*_test.go' '^func Fuzz' "$@"); do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9]+)\(.*/\1/p' "$file"); do
    go test "./$(dirname "$file")" -run='^$' -fuzz="^$target\$" -fuzztime="$time" -parallel=2
  done
done
