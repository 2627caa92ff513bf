#!/usr/bin/env bash
# Runs every fuzz test below some directories, each for that long: fuzz.sh TIME DIRECTORY…
set -euo pipefail
time=$1
shift
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# Before Go 1.27 a fuzz test may fail at the end of its time although it has found nothing: go.dev/issue/75804.
ended() {
  ! grep -q 'Failing input written' "$output" &&
    [ "$(grep -A1 -e '^--- FAIL' "$output" | tail -1 | tr -d ' ')" = contextdeadlineexceeded ]
}

for file in $(grep -rl --include='*_test.go' '^func Fuzz' "$@"); do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9]+)\(.*/\1/p' "$file"); do
    go test "./$(dirname "$file")" -run='^$' -fuzz="^$target\$" -fuzztime="$time" -parallel=2 2>&1 | tee "$output" || ended
  done
done
