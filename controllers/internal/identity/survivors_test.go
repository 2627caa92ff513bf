package identity

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Any client may have written the annotations of a Job. The survivors of a Memcached are its first
// members; those of another StatefulSet begin at its ordinals.start.
func TestSurvivorsAreAsTheOwnerWritesThem(t *testing.T) {
	for _, test := range []struct {
		text      string
		memcached Duty
		general   Duty
	}{
		{"2", Duty{Claim: "uid", Survivors: 2}, Duty{Claim: "uid", Survivors: 2}},
		{"512", Duty{Claim: "uid", Survivors: 512}, Duty{Claim: "uid", Survivors: 512}},
		{"513", Duty{}, Duty{Claim: "uid", Survivors: 513}},
		{"5+2", Duty{}, Duty{Claim: "uid", Start: 5, Survivors: 2}},
		{"2147483645+2", Duty{}, Duty{Claim: "uid", Start: 2147483645, Survivors: 2}},
		{"2147483646+2", Duty{}, Duty{}},
		{"2147483648", Duty{}, Duty{}},
		{"", Duty{}, Duty{}},
		{"0", Duty{}, Duty{}},
		{"-1", Duty{}, Duty{}},
		{"-1+2", Duty{}, Duty{}},
		{"5+0", Duty{}, Duty{}},
		{"5+", Duty{}, Duty{}},
		{"1+2+3", Duty{}, Duty{}},
		{strings.Repeat("0", 200) + "2", Duty{}, Duty{}},
	} {
		job := &batchv1.Job{}
		job.Labels = map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentDrainer}
		job.Annotations = map[string]string{cachev1alpha1.AnnotationClaimUID: "uid", cachev1alpha1.AnnotationSurvivors: test.text}
		if got := DutyOf(job); got != test.memcached {
			t.Errorf("a Memcached's %q: got %+v, want %+v", test.text, got, test.memcached)
		}
		job.Labels[cachev1alpha1.LabelStatefulSetDrain] = "queue"
		if got := DutyOf(job); got != test.general {
			t.Errorf("%q: got %+v, want %+v", test.text, got, test.general)
		}
	}
}
