package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// constraints of one kind over these topologies.
func constraints(when corev1.UnsatisfiableConstraintAction, topologies ...string) (all []corev1.TopologySpreadConstraint) {
	for _, key := range topologies {
		all = append(all, corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: when})
	}
	return all
}

// deployment with these constraints, in which we own those of this kind.
func deployment(owned corev1.UnsatisfiableConstraintAction, ownedTopologies []string, has ...corev1.TopologySpreadConstraint) *appsv1.Deployment {
	fields := ""
	for _, key := range ownedTopologies {
		fields += `"k:{\"topologyKey\":\"` + key + `\",\"whenUnsatisfiable\":\"` + string(owned) + `\"}":{".":{},"f:maxSkew":{},"f:topologyKey":{},"f:whenUnsatisfiable":{}},`
	}
	if fields != "" {
		fields = fields[:len(fields)-1]
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "cache"}}
	d.Spec.Template.Spec.TopologySpreadConstraints = has
	d.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: cachev1alpha1.ManagedBy, Operation: metav1.ManagedFieldsOperationApply,
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{"f:topologySpreadConstraints":{` + fields + `}}}}}`),
	}}
	return d
}

func wanted(all ...corev1.TopologySpreadConstraint) *appsac.DeploymentApplyConfiguration {
	spec := coreac.PodSpec()
	for _, c := range all {
		spec.WithTopologySpreadConstraints(coreac.TopologySpreadConstraint().WithMaxSkew(c.MaxSkew).WithTopologyKey(c.TopologyKey).WithWhenUnsatisfiable(c.WhenUnsatisfiable))
	}
	return appsac.Deployment("cache", "").WithSpec(appsac.DeploymentSpec().WithTemplate(coreac.PodTemplateSpec().WithSpec(spec)))
}

func TestAnElementThatAdmissionRenamedIsSentUnderItsNewName(t *testing.T) {
	const soft, hard = corev1.ScheduleAnyway, corev1.DoNotSchedule
	both := []string{"host", "zone"}
	for what, test := range map[string]struct {
		live *appsv1.Deployment
		want []corev1.TopologySpreadConstraint // nil for what is wanted
	}{
		"as it was sent":                {deployment(soft, both, constraints(soft, both...)...), nil},
		"named anew":                    {deployment(soft, both, constraints(hard, both...)...), constraints(hard, both...)},
		"one of two":                    {deployment(soft, both, append(constraints(soft, "zone"), constraints(hard, "host")...)...), append(constraints(hard, "host"), constraints(soft, "zone")...)},
		"sent as it is, the last time":  {deployment(hard, both, constraints(hard, both...)...), nil},
		"taken away":                    {deployment(soft, both), nil},
		"another client has added some": {deployment(soft, both, constraints(hard, "host", "zone", "rack")...), nil},
		"never sent":                    {deployment(soft, nil, constraints(hard, both...)...), nil},
	} {
		desired := wanted(constraints(soft, both...)...)
		want := desired
		if test.want != nil {
			want = wanted(test.want...)
		}
		if diff := cmp.Diff(want, renamed(desired, test.live)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

// After such a write we own the elements by their present keys, and the hash is that of the wanted
// configuration.
func TestAnElementSentUnderItsNewNameCountsAsSent(t *testing.T) {
	const soft, hard = corev1.ScheduleAnyway, corev1.DoNotSchedule
	both := []string{"host", "zone"}
	desired := wanted(constraints(soft, both...)...)
	for what, test := range map[string]struct {
		live *appsv1.Deployment
		want bool
	}{
		"as it was sent":                   {deployment(soft, both, constraints(soft, both...)...), true},
		"named anew":                       {deployment(soft, both, constraints(hard, both...)...), true},
		"sent as it is":                    {deployment(hard, both, constraints(hard, both...)...), true},
		"a stranger has taken one":         {deployment(soft, both[:1], constraints(soft, both...)...), false},
		"a stranger has taken one of them": {deployment(hard, both[:1], constraints(hard, both...)...), false},
	} {
		if got := ownsAll(test.live, desired.Spec.Template, "spec", "template"); got != test.want {
			t.Errorf("%s: as sent is %t", what, got)
		}
	}
}
