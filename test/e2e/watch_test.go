package e2e

import (
	"bufio"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/tier"
)

// A person sees this of a drain by kubectl alone.
func TestKubectlShowsADrainsProgressAndItsEvents(t *testing.T) {
	tier.Second(t, "TestStatusTellsTheWholeStoryOfAScaleDown")
	t.Parallel()
	spec := persistent(3)
	spec.Drain.RateLimit = &cachev1alpha1.RateLimit{ItemsPerSecond: ptr.To[int64](500)} // this takes twelve seconds
	f := setup(t, spec)
	f.fill(3, small(18_000))
	progress := f.watchProgress()

	f.scale(2)
	f.eventually("claim 2 is gone", func() bool { return f.claim(2) == nil })
	f.settled(2)

	f.expectMoving(progress())
	f.eventually("kubectl describe shows the drain's events, in order and each once", func() bool {
		return slices.Equal(f.describedEvents("data-cache-2"), []string{"DrainStarted", "Drained", "Released"})
	})
}

// shown is a line of kubectl get -w.
type shown struct {
	at   time.Time
	line string
}

// watchProgress runs kubectl get mc -w. The result returns the lines so far.
func (f *fixture) watchProgress() func() []shown {
	f.Helper()
	cmd := exec.CommandContext(f.ctx, "kubectl", "get", "mc", f.name, "-n", f.namespace, "-w")
	out, err := cmd.StdoutPipe()
	f.must(err)
	f.must(cmd.Start())
	lines := make(chan shown, 1000)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- shown{time.Now(), s.Text()}
		}
		_ = cmd.Wait()
	}()
	return func() []shown {
		var all []shown
		for len(lines) > 0 {
			all = append(all, <-lines)
		}
		return all
	}
}

var itemsDone = regexp.MustCompile(`(\d+)% \((\d+)/(\d+) items`)

// expectMoving expects that the number of items grows in every line that shows it, at least three times in a
// long drain. expectMoving logs how often.
func (f *fixture) expectMoving(lines []shown) {
	f.Helper()
	var values []int
	var last time.Time
	var longest time.Duration
	for _, l := range lines {
		f.Log(l.line)
		found := itemsDone.FindStringSubmatch(l.line)
		if found == nil {
			continue
		}
		done, err := strconv.Atoi(found[2])
		f.must(err)
		if n := len(values); n > 0 {
			longest = max(longest, l.at.Sub(last))
			if done < values[n-1] {
				f.Errorf("the progress goes back from %d to %d items", values[n-1], done)
			}
		}
		last = l.at
		if !slices.Contains(values, done) {
			values = append(values, done)
		}
	}
	f.Logf("%d steps of progress, the longest after %v", len(values), longest)
	if len(values) < 3 {
		f.Errorf("only %d steps of progress were shown: %v", len(values), values)
	}
}

// moves waits until kubectl has shown so many steps of progress.
func (f *fixture) moves(steps int, progress func() []shown) {
	f.Helper()
	var lines []shown
	f.eventually(fmt.Sprintf("kubectl shows %d steps of a drain's progress", steps), func() bool {
		lines = append(lines, progress()...)
		seen := map[string]bool{}
		for _, l := range lines {
			if found := itemsDone.FindStringSubmatch(l.line); found != nil {
				seen[found[2]] = true
			}
		}
		return len(seen) >= steps
	})
	f.expectMoving(lines)
}

// describedEvents returns the reasons of the events that kubectl describe shows of a claim's drain, in its
// order. A reason that came more than once has its count.
func (f *fixture) describedEvents(claim string) []string {
	f.Helper()
	out, err := exec.CommandContext(f.ctx, "kubectl", "describe", "mc", f.name, "-n", f.namespace).CombinedOutput()
	f.must(err)
	_, events, _ := strings.Cut(string(out), "\nEvents:")
	var reasons []string
	for line := range strings.Lines(events) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.Contains(line, claim) {
			continue
		}
		reason := fields[1]
		if strings.Contains(line, "(x") {
			reason += fmt.Sprintf(" %s", line)
		}
		reasons = append(reasons, reason)
	}
	return reasons
}
