package integration

import (
	"net/http"
	"strings"
	"testing"

	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// TestTheLogHasALineForEachWrite, with the cluster, the object and the reason, and none
// for a reconcile that writes nothing.
func TestTheLogHasALineForEachWrite(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	claim := w.claim(1)
	w.scale(1)
	w.claimGone(1, claim.UID)
	w.settled(1)
	w.quiet()
	w.stopOperator() // whatever it was about to write is written
	written := 0
	for _, write := range w.journal.Writes() {
		if write.Status < http.StatusMultipleChoices && write.Status != 0 && !strings.HasSuffix(write.Resource, "/status") {
			written++
		}
	}
	var lines []string
	for line := range strings.SplitSeq(w.log.tail(1<<20), "\n") {
		if strings.Contains(line, `"Wrote an object"`) {
			lines = append(lines, line)
		}
	}
	if len(lines) != written {
		t.Errorf("%d lines for %d writes:\n%s", len(lines), written, strings.Join(lines, "\n"))
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{
		`"verb"="apply" "kind"="StatefulSet" "object"="cache" "reason"="apply the StatefulSet, 1 replicas"`,
		`"verb"="create" "kind"="Job" "object"="data-cache-1-drain-`,
		`"reason"="drain claim data-cache-1 into 1 survivors"`,
		`"verb"="delete" "kind"="PersistentVolumeClaim" "object"="data-cache-1" "reason"="delete claim data-cache-1: Drained"`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no line has %s:\n%s", want, all)
		}
	}
	for _, line := range lines {
		if !strings.Contains(line, `"name"="`+name+`"`) || !strings.Contains(line, `"level"=0`) {
			t.Errorf("not of the cluster, or not at level info: %s", line)
		}
	}
}
