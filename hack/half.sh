#!/usr/bin/env bash
# Prints a pattern for go test -run: each second test of a folder, in the order of their names. Both halves together
# are all its tests but those that parts of their own run: half.sh FOLDER 1|2
set -euo pipefail
cd "$1"
sed -nE 's/^func (Test[A-Z0-9_][A-Za-z0-9_]*)\(.*/\1/p' -- *_test.go | grep -vxE 'TestMain|TestCrashPoints' | sort |
  awk -v half="$2" 'NR % 2 == half % 2' | paste -sd'|' | sed 's/.*/^(&)$/'
