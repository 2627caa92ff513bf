package status

import (
	"errors"
	"slices"
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/plan"
)

// TestReadyIsTrueOnlyWhenAllIsAsWanted: kubectl wait, Flux and Argo CD read only this
// condition.
func TestReadyIsTrueOnlyWhenAllIsAsWanted(t *testing.T) {
	statefulSet := func(change func(*appsv1.StatefulSet)) func(*Input) {
		return func(in *Input) {
			in.StatefulSet = &appsv1.StatefulSet{}
			in.StatefulSet.Generation, in.StatefulSet.Status.ObservedGeneration = 2, 2
			change(in.StatefulSet)
		}
	}
	deployment := func(change func(*appsv1.Deployment)) func(*Input) {
		return func(in *Input) {
			in.Cluster.Spec.Storage = nil
			in.Deployment = &appsv1.Deployment{}
			in.Deployment.Generation, in.Deployment.Status.ObservedGeneration = 2, 2
			change(in.Deployment)
		}
	}
	blocked := func(size int32, by plan.Block) func(*Input) {
		return func(in *Input) { in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To(size), by }
	}
	for name, test := range map[string]struct {
		in    *Input
		ready bool
		why   string
	}{
		"all is as wanted":               {input(3), true, "AsWanted"},
		"without storage":                {input(3).with(func(in *Input) { in.Cluster.Spec.Storage = nil }), true, "AsWanted"},
		"hibernated":                     {input(0), true, "Hibernated"},
		"hibernated, a drain is to come": {input(0).leaving(1, claims.Waiting, claims.Hibernating, ""), true, "Hibernated"},
		"none without storage":           {input(0).with(func(in *Input) { in.Cluster.Spec.Storage = nil }), true, "ScaledToZero"},
		"other keys will move one day":   {input(3).with(func(in *Input) { in.Cluster.Spec.Routing.Client = "gomemcache" }), true, "AsWanted"},
		"a roll-out that waits its turn": {input(3).with(func(in *Input) { in.RollOutWaits = "3 clusters go first" }), true, "AsWanted"},
		"it is being deleted":            {input(3).with(func(in *Input) { in.Cluster.DeletionTimestamp = &metav1.Time{Time: now} }), false, "Deleting"},
		"a person paused it":             {input(3).with(func(in *Input) { in.Cluster.Spec.Paused = true }), false, "Paused"},
		"a member is not ready":          {input(3).with(func(in *Input) { in.Pods[2] = pod(2, false) }), false, "Scaling"},
		"a member of a roll-out is not ready": {input(3).with(func(in *Input) { in.Pods[2] = pod(2, false) }).with(statefulSet(func(s *appsv1.StatefulSet) {
			s.Spec.Replicas, s.Status.Replicas, s.Status.CurrentRevision, s.Status.UpdateRevision = ptr.To[int32](3), 3, "a", "b"
		})), false, "Rolling"},
		"a member too many":               {input(3).with(func(in *Input) { in.Cluster.Spec.Size = ptr.To[int32](2) }), false, "Scaling"},
		"items are drained":               {input(2).leaving(2, claims.Draining, "", ""), false, "Draining"},
		"items are moved":                 {input(2).toMove(0, plan.MoveRuns, "", ""), false, "Moving"},
		"the size waits for a drain":      {input(2).leaving(2, claims.Draining, "", "").with(blocked(3, plan.BlockedByDrain)), false, "WaitingForDrain"},
		"the size waits for a move":       {input(2).toMove(0, plan.MoveRuns, "", "").with(blocked(1, plan.BlockedByMove)), false, "WaitingForMove"},
		"a volume is in the way":          {input(2).with(blocked(3, plan.BlockedByVolume)), false, "BlockedByVolume"},
		"a drain failed":                  {input(2).leaving(2, claims.Failed, "SourceCorrupt", "torn"), false, "DrainFailed"},
		"the API server refuses":          {input(2).with(func(in *Input) { in.Err = errors.New("no") }), false, "ReconcileError"},
		"volumes grow":                    {input(2).with(func(in *Input) { in.Plan.SmallClaims = make([]action.ClaimRef, 1) }), false, "VolumesGrow"},
		"no ServiceMonitors":              {input(2).with(func(in *Input) { in.Monitoring = MonitoringUnknown }), false, "ServiceMonitorUnknown"},
		"no Secret for applications yet":  {input(2).with(func(in *Input) { in.Cluster.Spec.Binding = &cachev1alpha1.BindingSpec{} }), false, "BindingIncomplete"},
		"members are replaced":            {input(3).with(statefulSet(func(s *appsv1.StatefulSet) { s.Status.UpdateRevision = "2" })), false, "Rolling"},
		"the StatefulSet was seen":        {input(3).with(statefulSet(func(*appsv1.StatefulSet) {})), true, "AsWanted"},
		"the StatefulSet is to be seen":   {input(3).with(statefulSet(func(s *appsv1.StatefulSet) { s.Generation++ })), false, "Rolling"},
		"the StatefulSet is just written": {input(3).with(statefulSet(func(*appsv1.StatefulSet) {})).with(func(in *Input) { in.MembersWritten = true }), false, "Rolling"},
		"the Deployment was seen":         {input(3).with(deployment(func(*appsv1.Deployment) {})), true, "AsWanted"},
		"the Deployment is to be seen":    {input(3).with(deployment(func(d *appsv1.Deployment) { d.Generation++ })), false, "Rolling"},
		"the Deployment replaces members": {input(3).with(deployment(func(d *appsv1.Deployment) { d.Status.Replicas = 3 })), false, "Rolling"},
	} {
		t.Run(name, func(t *testing.T) {
			s := compute(t, test.in)
			c := s.Conditions[0]
			if c.Type != cachev1alpha1.ConditionReady || c.Reason != test.why || (c.Status == metav1.ConditionTrue) != test.ready || c.Message == "" {
				t.Errorf("got %+v", c)
			}
			if c.ObservedGeneration != 7 || s.ObservedGeneration != 7 {
				t.Errorf("of generation %d, status of %d", c.ObservedGeneration, s.ObservedGeneration)
			}
		})
	}
}

// atRest are the conditions of a cluster that has nothing to say.
var atRest = []string{"Ready", "Available", "Progressing", "Degraded"}

// A cluster at rest shows four conditions, whatever its spec asks for and its status had before. Other
// conditions are there while they need something.
func TestAtRestAClusterShowsFourConditions(t *testing.T) {
	others := []string{"Draining", "Moving", "Monitored", "Bindable", "RoutersReady"}
	plain := func(in *Input) { in.Cluster.Spec.Storage = nil }
	before := func(in *Input) {
		for _, kind := range append(slices.Clone(others), "CertificateValid", "Warm") {
			meta.SetStatusCondition(&in.Cluster.Status.Conditions, metav1.Condition{Type: kind, Status: "Unknown", Reason: "Before"})
		}
	}
	all := func(in *Input) { // and all is well
		in.Cluster.Spec.Binding, in.Binding = &cachev1alpha1.BindingSpec{SecretName: "s"}, &Binding{Name: "s"}
		in.Monitoring = Monitored
		in.Cluster.Spec.TLS, in.Certificates = &cachev1alpha1.TLSSpec{SecretName: "tls"}, []Certificate{{Pod: "cache-0", NotAfter: now.Add(30 * 24 * time.Hour)}}
		in.Cluster.Spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](1)}
		in.Routers = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)}, Status: appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, UpdatedReplicas: 1}}
	}
	for name, test := range map[string]struct {
		in    *Input
		shows []string
	}{
		"plain":                   {input(2).with(plain).with(before).with(func(in *Input) { in.Monitoring = NotMonitored }), nil},
		"with storage":            {input(2).with(before).with(func(in *Input) { in.Monitoring = NotMonitored }), nil},
		"hibernated":              {input(0).with(func(in *Input) { in.Monitoring = NotMonitored }), nil},
		"all that a spec can ask": {input(2).with(all).with(before), nil},
		"nothing was read": {input(2).with(func(in *Input) {
			in.Cluster.Spec.Binding, in.Cluster.Status.Binding = &cachev1alpha1.BindingSpec{SecretName: "s"}, &cachev1alpha1.BindingStatus{Name: "s"}
			in.Cluster.Spec.TLS = &cachev1alpha1.TLSSpec{SecretName: "tls"}
		}), nil},
		"nothing was read, and before it had much to say": {input(2).with(before).with(func(in *Input) {
			in.Cluster.Spec.Binding = &cachev1alpha1.BindingSpec{SecretName: "s"}
		}), []string{"Monitored", "Bindable"}},
		"the Secret is not written": {input(2).with(func(in *Input) {
			in.Cluster.Spec.Binding, in.Cluster.Status.Binding = &cachev1alpha1.BindingSpec{SecretName: "new"}, &cachev1alpha1.BindingStatus{Name: "old"}
		}), []string{"Bindable"}},
		"much to say": {input(2).leaving(2, claims.Draining, "", "").toMove(0, plan.MoveWaits, "", "").with(func(in *Input) {
			in.Monitoring, in.Binding = MonitoringUnknown, &Binding{Reason: cachev1alpha1.ReasonBindingForbidden}
			in.Cluster.Spec.Binding, in.Cluster.Spec.Router = &cachev1alpha1.BindingSpec{SecretName: "s"}, &cachev1alpha1.RouterSpec{}
		}), others},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range compute(t, test.in).Conditions {
				got = append(got, c.Type)
			}
			if diff := cmp.Diff(append(slices.Clone(atRest), test.shows...), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
