package build

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// pods returns the pods of both kinds of clusters, by the kind.
func pods(change func(*cachev1alpha1.MemcachedSpec)) map[string]*coreac.PodSpecApplyConfiguration {
	stored := withStorage().With(change).Defaulted().Obj()
	plain := apitest.MakeMemcached("cache").Namespace("shop").With(change).Defaulted().Obj()
	return map[string]*coreac.PodSpecApplyConfiguration{
		"StatefulSet": StatefulSet(stored, options, 3).Spec.Template.Spec,
		"Deployment":  Deployment(plain, options).Spec.Template.Spec,
	}
}

func TestMembersSpreadOverNodesAsThePersonSays(t *testing.T) {
	type constraint struct {
		Key, When string
		Members   bool
	}
	another := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "cache"}}
	for name, test := range map[string]struct {
		template cachev1alpha1.PodTemplate
		want     []constraint
	}{
		"by default": {cachev1alpha1.PodTemplate{}, []constraint{{"kubernetes.io/hostname", "ScheduleAnyway", true}}},
		"Soft":       {cachev1alpha1.PodTemplate{Spread: "Soft"}, []constraint{{"kubernetes.io/hostname", "ScheduleAnyway", true}}},
		"Hard":       {cachev1alpha1.PodTemplate{Spread: "Hard"}, []constraint{{"kubernetes.io/hostname", "DoNotSchedule", true}}},
		"Off":        {cachev1alpha1.PodTemplate{Spread: "Off"}, nil},
		"constraints of a person": {
			cachev1alpha1.PodTemplate{Spread: "Hard", TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule},
				{MaxSkew: 1, TopologyKey: "rack", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: another},
			}},
			[]constraint{{"zone", "DoNotSchedule", true}, {"rack", "ScheduleAnyway", false}},
		},
	} {
		for kind, pod := range pods(func(s *cachev1alpha1.MemcachedSpec) { s.PodTemplate = test.template }) {
			t.Run(name+", "+kind, func(t *testing.T) {
				var got []constraint
				for _, c := range pod.TopologySpreadConstraints {
					members := cmp.Equal(c.LabelSelector.MatchLabels, Selector(withStorage().Obj()))
					got = append(got, constraint{*c.TopologyKey, string(*c.WhenUnsatisfiable), members})
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			})
		}
	}
}

// A drainer has to read the members' files. If its template sets one field, it still inherits the
// members' user and group.
func TestASecurityContextIsInheritedFieldByField(t *testing.T) {
	members := &corev1.PodSecurityContext{
		RunAsUser: ptr.To[int64](5), RunAsGroup: ptr.To[int64](6), FSGroup: ptr.To[int64](7), RunAsNonRoot: ptr.To(true), SupplementalGroups: []int64{8},
	}
	for name, test := range map[string]struct{ given, want *corev1.PodSecurityContext }{
		"none": {nil, members},
		"one field": {
			&corev1.PodSecurityContext{SupplementalGroups: []int64{9}},
			&corev1.PodSecurityContext{
				RunAsUser: ptr.To[int64](5), RunAsGroup: ptr.To[int64](6), FSGroup: ptr.To[int64](7), RunAsNonRoot: ptr.To(true), SupplementalGroups: []int64{9},
			},
		},
		"root": {
			&corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0)},
			&corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0), RunAsGroup: ptr.To[int64](6), FSGroup: ptr.To[int64](7), SupplementalGroups: []int64{8}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := inherited(&cachev1alpha1.PodTemplate{SecurityContext: test.given}, &cachev1alpha1.PodTemplate{SecurityContext: members})
			if diff := cmp.Diff(test.want, got.SecurityContext); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSettingsReachThePods(t *testing.T) {
	change := func(s *cachev1alpha1.MemcachedSpec) {
		s.PodTemplate = cachev1alpha1.PodTemplate{
			PriorityClassName: "high", ServiceAccountName: "cache", SchedulerName: "own", RuntimeClassName: ptr.To("gvisor"),
			TerminationGracePeriodSeconds: ptr.To[int64](7),
			NodeSelector:                  map[string]string{"disk": "ssd"},
			Tolerations:                   []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
			ImagePullSecrets:              []corev1.LocalObjectReference{{Name: "pull"}},
			Affinity:                      &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
		}
	}
	for kind, pod := range pods(change) {
		got := []any{
			*pod.PriorityClassName, *pod.ServiceAccountName, *pod.SchedulerName, *pod.RuntimeClassName,
			*pod.TerminationGracePeriodSeconds, pod.NodeSelector["disk"], *pod.Tolerations[0].Key, *pod.ImagePullSecrets[0].Name,
			pod.Affinity.NodeAffinity != nil, *pod.AutomountServiceAccountToken,
		}
		want := []any{"high", "cache", "own", "gvisor", int64(7), "ssd", "dedicated", "pull", true, false}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", kind, diff)
		}
	}
}

// A drainer that runs as another user than the member can't read the member's files.
func TestDrainersRunAsTheMembersDo(t *testing.T) {
	own := &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](2000), FSGroup: ptr.To[int64](3000)}
	for name, test := range map[string]struct {
		given *corev1.PodSecurityContext
		want  int64
	}{"by default": {nil, 11211}, "a person's": {own, 2000}} {
		b := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) { s.PodTemplate.SecurityContext = test.given })
		member := StatefulSet(b.Defaulted().Obj(), options, 1).Spec.Template.Spec.SecurityContext
		drainer := drainJob(b).Spec.Template.Spec.SecurityContext
		if *member.RunAsUser != test.want || *drainer.RunAsUser != test.want {
			t.Errorf("%s: member %d, drainer %d, want %d", name, *member.RunAsUser, *drainer.RunAsUser, test.want)
		}
	}
}

func TestWithoutStorageTheGraceIsTheClustersOwn(t *testing.T) {
	pod := pods(func(*cachev1alpha1.MemcachedSpec) {})["Deployment"]
	if pod.TerminationGracePeriodSeconds != nil {
		t.Errorf("%d s", *pod.TerminationGracePeriodSeconds)
	}
}
