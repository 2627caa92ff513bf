package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/test/tier"
)

// maxWritesPerScaleDown is how many API writes a scale-down may take.
const maxWritesPerScaleDown = 15

// TestFiftyClustersTakeNoMoreWritesThanAllowed is the benchmark in small. It asserts counts, never times.
func TestFiftyClustersTakeNoMoreWritesThanAllowed(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	kwok := os.Getenv("SCALE_KWOK")
	if kwok == "" {
		found, _ := filepath.Glob(filepath.Join(root, "bin", "kwok-*"))
		if len(found) == 0 {
			tier.Needs(t, "kwok in bin", os.ErrNotExist)
		}
		kwok = found[len(found)-1]
	}
	columns, err := run(t.Context(), options{
		root: root, kwok: kwok, manager: filepath.Join(root, "bin", "manager"),
		steps: []int{50}, scaleDowns: 20, foreign: 100, largeFrom: 12, largeTo: 8,
		idle: 15 * time.Second, resync: 20 * time.Second,
		limit: 5 * time.Minute, timeout: 12 * time.Minute,
	}, os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	printTable(&table, columns)
	t.Log("\n" + table.String())
	for _, c := range columns {
		check(t, c)
	}
}

// check holds a phase to its counts.
func check(t *testing.T, c *column) {
	t.Helper()
	if c.errors != 0 {
		t.Errorf("%s: %.0f reconciles failed", c.name, c.errors)
	}
	switch {
	case strings.HasSuffix(c.name, scaledDown):
		// Details of a status go together every two seconds: a machine that takes
		// longer than the four that scale-downs take has more of them.
		most := maxWritesPerScaleDown + max(0, c.seconds-4)/2
		if got := float64(c.writes()) / float64(c.per); got > most {
			t.Errorf("%s: %.1f API writes for each, want %.1f at most: %v", c.name, got, most, c.calls)
		}
	case c.name == atRest, c.name == resynced, strings.HasPrefix(c.name, restarted), strings.HasSuffix(c.name, "foreign"):
		if c.writes() != 0 {
			t.Errorf("%s: %d API writes, want none: %v", c.name, c.writes(), c.calls)
		}
	}
	if c.name == resynced && c.reconciles == 0 {
		t.Error("the manager did not resync")
	}
}
