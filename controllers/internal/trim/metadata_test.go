package trim

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// TestEveryKeyOfTheAPIIsKept: a new key must be added here, or the cache drops it.
func TestEveryKeyOfTheAPIIsKept(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1alpha1/keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		prefix, value := "", spec.Values[0]
		if sum, ok := value.(*ast.BinaryExpr); ok { // Group + "/…"
			prefix, value = cachev1alpha1.Group, sum.Y
		}
		text, _ := value.(*ast.BasicLit)
		if text == nil || text.Kind != token.STRING {
			return true
		}
		key, err := strconv.Unquote(text.Value)
		if err != nil {
			t.Fatal(err)
		}
		key = prefix + key
		var kept bool
		switch name := spec.Names[0].Name; {
		case name == "AnnotationList":
			kept = true // the list annotation is kept only as its version
		case name == "AnnotationOperator" || name == "AnnotationOtherOperator" || name == "AnnotationWarm" || name == "AnnotationWarmed":
			kept = true // the annotation is on Memcacheds, which are not trimmed
		case strings.HasPrefix(name, "Label"):
			kept = slices.Contains(knownLabels, key)
		case strings.HasPrefix(name, "Annotation"):
			kept = ofClaims[key]+ofJobs[key]+ofPods[key]+ofTargets[key]+ofApplied[key] > 0
		default:
			return true
		}
		if n++; !kept {
			t.Errorf("%s is not kept", key)
		}
		return true
	})
	if n < 15 {
		t.Errorf("only %d keys were found", n)
	}
}

// TestLabelsThatObjectsAreFoundByAreKeptFirst, even if a person adds many labels.
func TestLabelsThatObjectsAreFoundByAreKeptFirst(t *testing.T) {
	cluster := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: "cache"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: build.Labels(cluster, cachev1alpha1.ComponentMember)}}
	for i := range 40 {
		pod.Labels[fmt.Sprintf("a%02d", i)] = "x"
	}
	want := build.Labels(cluster, cachev1alpha1.ComponentMember)
	for i := range maxOthers {
		want[fmt.Sprintf("a%02d", i)] = "x"
	}
	if diff := cmp.Diff(want, trimmed(t, pod).Labels); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOwnersAndFinalizersThatCountAreKeptAmongMany(t *testing.T) {
	pod := &corev1.Pod{}
	for i := range 5000 {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{Kind: "ConfigMap", Name: fmt.Sprint(i)})
		pod.Finalizers = append(pod.Finalizers, fmt.Sprintf("people/%d", i))
	}
	controller := metav1.OwnerReference{Kind: "Job", Name: "drain", UID: "1", Controller: ptr.To(true)}
	pod.OwnerReferences = append(pod.OwnerReferences, controller)
	pod.Finalizers = append(pod.Finalizers, knownFinalizers...)
	got := trimmed(t, pod)
	if diff := cmp.Diff(&controller, metav1.GetControllerOf(got)); diff != "" || len(got.OwnerReferences) != maxOthers+1 {
		t.Errorf("%d owners, the controller -want +got:\n%s", len(got.OwnerReferences), diff)
	}
	if diff := cmp.Diff(knownFinalizers, got.Finalizers[maxOthers:]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestATextThatIsTooLongIsNotTakenForAnotherOne after it was cut.
func TestATextThatIsTooLongIsNotTakenForAnotherOne(t *testing.T) {
	for _, s := range []string{
		strings.Repeat("x", 300), strings.Repeat("x", 253) + "ü", strings.Repeat("ü", 200), strings.Repeat("x", 253) + "\xff", strings.Repeat("\xff", 300),
	} {
		if got := name(s); len(got) <= maxName && !strings.Contains(got, "\uFFFD") {
			t.Errorf("%q became %q", s, got)
		}
	}
	if s := strings.Repeat("x", maxName); name(s) != s {
		t.Error("a name of the longest is not kept")
	}
}
