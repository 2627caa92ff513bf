package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// A template that is kept has all elements that are ours, under the keys that they have now.
func TestATemplateThatIsKeptHasWhatAdmissionNamedAnew(t *testing.T) {
	const soft, hard = corev1.ScheduleAnyway, corev1.DoNotSchedule
	both := []string{"host", "zone"}
	for what, test := range map[string]struct {
		live *appsv1.Deployment
		want []corev1.TopologySpreadConstraint
	}{
		"as it was sent":                {deployment(soft, both, constraints(soft, both...)...), constraints(soft, both...)},
		"named anew":                    {deployment(soft, both, constraints(hard, both...)...), constraints(hard, both...)},
		"one of two":                    {deployment(soft, both, append(constraints(soft, "zone"), constraints(hard, "host")...)...), append(constraints(soft, "zone"), constraints(hard, "host")...)},
		"another client has added some": {deployment(soft, both, constraints(hard, "host", "zone", "rack")...), nil},
		"another client's beside ours":  {deployment(soft, both[:1], constraints(soft, both...)...), constraints(soft, "host")},
	} {
		live := test.live
		live.ManagedFields[0].FieldsType, live.ManagedFields[0].APIVersion = "FieldsV1", "apps/v1"
		m := &templateInput{object: live, live: &live.Spec.Template}
		m.applied = func() (*coreac.PodTemplateSpecApplyConfiguration, error) { return wanted().Spec.Template, nil }
		got, err := m.present()
		if err != nil {
			t.Fatal(err)
		}
		want := wanted(test.want...).Spec.Template.Spec.TopologySpreadConstraints
		if diff := cmp.Diff(want, got.Spec.TopologySpreadConstraints, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

// The object that was applied last has the fields that are ours, and no others.
func TestTheLastAppliedObjectHasOurFieldsAlone(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "shop", Labels: map[string]string{"ours": "1", "theirs": "2"}}}
	d.Spec.Template.Spec.Containers = []corev1.Container{
		{Name: "memcached", Image: "memcached:1", Command: []string{"memcached", "-m", "64"}, TerminationMessagePath: "/dev/termination-log"},
		{Name: "injected", Image: "proxy:1"},
	}
	d.Spec.Template.Spec.NodeName = "theirs"
	d.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: cachev1alpha1.ManagedBy, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", APIVersion: "apps/v1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:ours":{}}},"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"memcached\"}":{".":{},"f:name":{},"f:image":{},"f:command":{}}}}}}}`),
	}}
	want, err := appsac.ExtractDeployment(d, cachev1alpha1.ManagedBy)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, lastApplied[appsac.DeploymentApplyConfiguration](d)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	d.ManagedFields = nil
	if got := lastApplied[appsac.DeploymentApplyConfiguration](d); got != nil {
		t.Errorf("nothing is known to be ours, and it is %v", got)
	}
}
