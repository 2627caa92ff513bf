#!/usr/bin/env bash
# Runs every fuzz test below some directories, each for that long: fuzz.sh TIME DIRECTORY…
# Those below controllers run without coverage's guidance: for it Go compiles all of Kubernetes' packages anew, for half
# an hour.
set -euo pipefail
time=$1
shift
output=$(mktemp)
scratch=$(mktemp -d)
trap 'rm -rf "$output" "$scratch"' EXIT

# Before Go 1.27 a fuzz test may fail at the end of its time although it has found nothing: go.dev/issue/75804.
ended() {
  ! grep -q 'Failing input written' "$output" &&
    [ "$(grep -A1 -e '^--- FAIL' "$output" | tail -1 | tr -d ' ')" = contextdeadlineexceeded ]
}

for file in $(grep -rl --include='*_test.go' '^func Fuzz' "$@"); do
  directory=$(dirname "$file")
  guided=true
  case $directory in controllers*) guided=false ;; esac
  $guided || go test -c -vet=off -o "$scratch/test" "./$directory"
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9]+)\(.*/\1/p' "$file"); do
    if $guided; then
      go test "./$directory" -run='^$' -fuzz="^$target\$" -fuzztime="$time" -parallel=2
    else
      (cd "$directory" && "$scratch/test" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="$time" -test.parallel=2 \
        -test.fuzzcachedir="$scratch/cache")
    fi 2>&1 | tee "$output" || ended
  done
done
