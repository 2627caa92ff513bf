package controllers

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
)

// nextList decides on the clients' list, where that many members are to be.
func (o *observed) nextList(replicas int32) {
	n := build.Listed(o.listed(), replicas, o.ready)
	o.servers = build.ListedServers(o.cluster, n)
	if o.record = o.recorded(); o.cluster.Spec.Storage != nil {
		o.record = o.record.Next(build.RingOf(o.cluster, n))
	}
}

// recorded is the record of the cluster's rings that goes with the last list. An
// operator that kept none had everything where its list says. Where the list is gone,
// spoilt, older than what a claim tells of (one that came back from a backup), or of
// more members or rings than there can be, nobody knows.
func (o *observed) recorded() ring.Record {
	standing := o.standing()
	var serials []int64
	members := int32(0)
	for i := range standing.Claims {
		if c := &standing.Claims[i]; !c.Aside {
			serials, members = append(serials, c.Placed), max(members, c.Ordinal+1)
		}
	}
	last := ring.Last(serials...)
	if o.serverList != nil {
		kept, is := o.serverList.Annotations[cachev1alpha1.AnnotationRing]
		if !is && last == 0 {
			return ring.Record{Ring: build.RingOf(o.cluster, o.listed())}
		}
		if record, err := ring.Parse(kept); err == nil {
			last = ring.Last(append(serials, record.Serial)...)
			if record.Serial == last && record.Ring.Size <= standing.MostMembers() {
				return record
			}
		}
	}
	return ring.Unknown(last, members)
}

// placedBy drops what claims say of rings that the record doesn't know.
func placedBy(record ring.Record, claims []plan.Claim) {
	for i := range claims {
		claims[i].Placed = record.Placed(claims[i].Placed)
	}
}

// listed is how many servers the clients were given last: by the status, which
// is never older than our last write of it, or by the ConfigMap, which is written
// before that. Anybody may have written more than there can be.
func (o *observed) listed() int32 {
	n := len(o.cluster.Status.Servers)
	if o.serverList != nil {
		n = max(n, named(o.serverList))
	}
	standing := o.standing()
	return int32(min(n, int(standing.MostMembers())))
}

// named is how many servers the list names.
func named(list *corev1.ConfigMap) int { return strings.Count(list.Data[build.ServersKey], "\n") }

func planPlacement(c *cachev1alpha1.Memcached, record ring.Record) plan.Placement {
	return plan.Placement{
		Off:    c.Spec.Routing.Placement == cachev1alpha1.PlacementOff,
		Target: record.Target(), Serial: record.Serial, Size: record.Ring.Size, Due: record.Due, Holding: record.Holding, From: record.From.Size,
	}
}
