package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// maxWritesPerScaleDown is how many API writes a scale-down may take.
const maxWritesPerScaleDown = 15

// maxReadsPerScaleDown is how many API reads a scale-down may take, also beside other objects in the
// namespace. In a benchmark of 1,000 clusters a scale-down takes 16.0; one of 20 at once takes up to 19 on a busy machine,
// whose steps need more reconciles.
const maxReadsPerScaleDown = 20

// maxReadsPerCreation is how many API reads a new cluster of four members may take. In a benchmark it takes 9.0.
const maxReadsPerCreation = 10

// TestClustersTakeNoMoreWritesThanAllowed is the benchmark in small. The test asserts counts, never times.
func TestClustersTakeNoMoreWritesThanAllowed(t *testing.T) {
	measure(t, options{steps: []int{20}, scaleDowns: 20, foreign: 100, resync: 2 * time.Second})
}

func TestFiftyClustersTakeNoMoreWritesThanAllowed(t *testing.T) {
	tier.Second(t, "TestClustersTakeNoMoreWritesThanAllowed")
	measure(t, options{
		steps: []int{50}, scaleDowns: 20, foreign: 100, largeFrom: 12, largeTo: 8,
		idle: 15 * time.Second, resync: 10 * time.Second,
	})
}

func measure(t *testing.T, o options) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	o.root, o.kwok, o.manager = root, os.Getenv("SCALE_KWOK"), filepath.Join(root, "bin", "manager")
	if o.kwok == "" {
		found, _ := filepath.Glob(filepath.Join(root, "bin", "kwok-*"))
		o.kwok = append([]string{filepath.Join(root, "bin", "kwok")}, found...)[len(found)]
	}
	for what, program := range map[string]string{
		"kwok": o.kwok, "the manager": o.manager, "Kubernetes": filepath.Join(root, "bin", "k8s", "kube-apiserver"),
	} {
		_, err := os.Stat(program)
		tier.Needs(t, what+" of `make test-scale`", err)
	}
	o.limit = time.Until(wait.Deadline())
	o.timeout = o.limit
	columns, err := run(t.Context(), o, os.Stdout)
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

// check compares a phase's counts with their bounds.
func check(t *testing.T, c *column) {
	t.Helper()
	if c.errors != 0 {
		t.Errorf("%s: %.0f reconciles failed", c.name, c.errors)
	}
	switch {
	case strings.HasSuffix(c.name, scaledDown):
		// Details of a status are written together every two seconds. With the time of rest, scale-downs take
		// seven seconds; a slower machine writes more details. One scale-down in two may repeat a write,
		// because Kubernetes has just changed the object.
		most := maxWritesPerScaleDown + 0.5 + max(0, c.rested-7)/2
		if got := float64(c.writes()) / float64(c.per); got > most {
			t.Errorf("%s: %.1f API writes for each, want %.1f at most: %v", c.name, got, most, c.calls)
		}
		// The progress of drainers is read for as long as they run, and one scale-down in two may repeat a read, as above.
		most = maxReadsPerScaleDown + 0.5
		if got := float64(c.reads()-c.calls[call{"get", "pods/log"}]) / float64(c.per); got > most {
			t.Errorf("%s: %.1f API reads for each besides the progress, want %.1f at most: %v", c.name, got, most, c.calls)
		}
	case strings.HasSuffix(c.name, " clusters"):
		if got := float64(c.reads()) / float64(c.per); got > maxReadsPerCreation {
			t.Errorf("%s: %.1f API reads for each, want %d at most: %v", c.name, got, maxReadsPerCreation, c.calls)
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
