package controllers

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/status"
)

// growthRefused is why volumes may not grow; empty if they may.
func (o *outcome) growthRefused() string { return cmp.Or(o.done.GrowthRefused, o.GrowthRefused) }

// statusInput is the input of the status.
func (o *outcome) statusInput(p plan.Plan, err error, now time.Time) *status.Input {
	started := map[types.UID]metav1.Time{}
	for i := range o.Jobs {
		started[identity.ClaimUID(&o.Jobs[i])] = o.Jobs[i].CreationTimestamp
	}
	room := o.Room
	if room.Asking() {
		room = nil
	}
	servers, record := build.Servers(o.Cluster, o.Ports(o.Cluster), p.ListSize), p.Record
	if !o.done.ListWritten && o.Cluster.DeletionTimestamp == nil {
		in := o.Input()
		servers, record = o.Cluster.Status.Servers, in.Record // the list was not written, so the present one counts
	}
	var behind []status.RouterBehind
	for _, b := range o.Routers.Behind {
		behind = append(behind, status.RouterBehind(b))
	}
	certificates, silent := o.certificates()
	drainers := slices.DeleteFunc(slices.Clone(o.DrainerPods), func(p corev1.Pod) bool { return read.DrainerEnded(&p) })
	return &status.Input{
		Cluster: o.Cluster, StatefulSet: o.StatefulSet, Deployment: o.Deployment, Pods: o.Pods, Routers: o.Routers.Deployment, RouterPods: o.Routers.Pods, RoutersBehind: behind, Drainers: drainers, Kept: o.Kept(),
		Plan: p, Room: room, Servers: servers, Listed: o.done.Listed, MemberServices: o.MemberServices, Ring: record, Warmed: observe.WarmRecord(o.Cluster), WarmAttempts: observe.WarmAttempts(o.Cluster), Monitoring: o.done.Monitored, Binding: o.done.Binding, GrowthRefused: o.growthRefused(), Marked: o.done.Marked, Progress: o.Progress, JobStarted: started,
		Waits: o.DrainerWaits(now), Err: err, Now: now,
		NotCreated: o.NotCreated, Refused: o.Refused, RollOutWaits: o.done.RollOutWaits, SizeChanged: o.done.SizeChanged, MembersWritten: o.done.MembersWritten, OtherOperator: o.other, NodesUnknown: o.NodesUnknown, Certificates: certificates, CertificatesSilent: silent,
	}
}

// certificates returns the certificates that are known. silent: pods have been asked, and none has
// answered.
func (o *outcome) certificates() (known []status.Certificate, silent bool) {
	for _, c := range o.Certificates {
		if silent = silent || c.Known; c.Known && c.Err == "" {
			is := status.Certificate{Pod: c.Pod, Trouble: c.Trouble}
			if c.NotAfter != 0 {
				is.NotAfter = time.Unix(c.NotAfter, 0)
			}
			known = append(known, is)
		}
	}
	return known, silent && len(known) == 0
}
