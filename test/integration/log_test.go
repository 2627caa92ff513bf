package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/operator"

	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// TestTheLogHasALineForEachWrite, with the cluster, the object and the reason, and no line for a reconcile that
// writes nothing.
func TestTheLogHasALineForEachWrite(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	claim := w.claim(1)
	w.scale(1)
	w.claimGone(1, claim.UID)
	w.settled(1)
	w.quiet()
	w.stopOperator() // it has made the writes that it had begun
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

// errors returns the log's lines at level error.
func (b *logBuffer) errors() string {
	var lines []string
	for line := range strings.SplitSeq(b.tail(1<<20), "\n") {
		if line != "" && !strings.Contains(line, `"level"=`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// All objects of a namespace are deleted, and the Memcached happens to be the last. The operator creates again
// what the spec asks for, and the API server refuses that. This is no error.
func TestANamespaceThatIsBeingDeletedIsNoErrorInTheLog(t *testing.T) {
	w := newWorld(t)
	w.create(sample())
	w.settled(3)
	dry := &client.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	m := w.memcached()
	allow := w.denyAs(admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: []string{cachev1alpha1.Group}, APIVersions: []string{"*"}, Resources: []string{"memcacheds"}},
	}, "it goes last", func() error { return admin.Delete(t.Context(), m, dry) })
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if err := admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	w.eventually("a refused write", func() error {
		writes := w.journal.Writes()
		if !slices.ContainsFunc(writes, func(w operator.Write) bool { return w.Status == http.StatusForbidden }) {
			return fmt.Errorf("%d writes", len(writes))
		}
		return nil
	})
	allow()
	w.eventually("the namespace gone", func() error {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s %w", asJSON(namespace.Status), err)
	})
	w.stopOperator()
	if lines := w.log.errors(); lines != "" {
		t.Errorf("the log has errors:\n%s", lines)
	}
}
