package invariants

import (
	"slices"

	"example.com/memcached-operator/drainer/contract"
)

// State is a cluster with storage at one moment: its objects, and the invariants' memory of the past
// (Remember).
type State struct {
	Cluster Cluster
	Members StatefulSet
	Pods    []Pod
	Claims  []Claim
	Jobs    []Job
	// Drains are the StatefulSetDrains, and SetJobs their Jobs.
	Drains  []SetDrain
	SetJobs []SetJob
	// Volumes are those that the claims are or were bound to; nil if they are unknown.
	Volumes []Volume
	// NamespaceTerminating is set if no pod can start here any more.
	NamespaceTerminating bool
	// Told is how many servers clients are told of; 0 if that is unknown.
	Told int32
	// Out is the member that routers leave out for its restart, counted from 1, and OutSerial the serial of that
	// ring; 0 for none.
	Out       int32
	OutSerial int64
	// Routed is the state of a ring change that routers have; "" if there are no routers.
	Routed string

	// AtRest is set if nothing was under way in this state.
	AtRest bool
	// Versions has those of all objects, by kind and name; nil if they are unknown.
	Versions map[string]string
	// Items are the items that a client finds; nil if there is no client.
	Items []Item

	// DepartedVolumes are those whose member left while others stayed: their values may
	// be old.
	DepartedVolumes []string
	// GivenUp are the volumes that a receipt or a person's word released.
	GivenUp []string
	// Bound are the volumes that a claim was bound to: before that no pod can use a volume, so nothing is on it.
	Bound []string
}

// Cluster is the Memcached.
type Cluster struct {
	Exists    bool
	Deleting  bool
	Finalizer bool
	// Size is the wanted one.
	Size int32
	// KeepsItems is false under the policies Retain and Delete.
	KeepsItems bool
	// ReleasesUnreadable is set if spec.drain.onUnrecoverable is Release.
	ReleasesUnreadable bool
	// Shown are the claims that status names, with a phase or a reason.
	Shown []string
}

// StatefulSet of the members.
type StatefulSet struct {
	Exists   bool
	Replicas int32
}

// Pod is a member's or a drainer's.
type Pod struct {
	// MayWrite: it is no Memcached's, but another StatefulSet's member, or the drainer of a StatefulSetDrain.
	MayWrite  bool
	Name, UID string
	// Ordinal is the member's; a drainer has -1. StartsEmpty is the serial for which the member is told to start
	// empty; 0 for none.
	Ordinal     int32
	StartsEmpty int64
	// Claim is the name of the one that it mounts. ReadOnly is set if it mounts it read-only. Claims has all of
	// them, if it mounts several.
	Claim    string
	Claims   []string
	ReadOnly bool
	// AtWork is set if the pod is bound to a node, and has not ended.
	AtWork bool
	// DrainsClaim is the UID of the claim in a drainer's command, and Survivors the number of servers there.
	DrainsClaim string
	Survivors   int32
	// Moves is set if it is a mover, and Waits if it was not told to begin. Job is its Job's UID.
	Moves, Waits bool
	Job          string
	// Receipt is the receipt at the Job's end; nil if there is none.
	Receipt *contract.Receipt
	// Emptied is set if it is the drainer of a StatefulSetDrain, and has moved everything.
	Emptied bool
}

func (p *Pod) drainer() bool { return p.Ordinal < 0 }

// Claim is that of a present or departed member.
type Claim struct {
	Name, UID string
	// Ordinal is its member's; -1 if the claim's name has none.
	Ordinal int32
	// Volume is the one that it is bound to; empty before that.
	Volume string
	// HasFinalizer is set if it has the operator's finalizer.
	HasFinalizer bool
	Deleting     bool
	// Leaving is set if it has the leaving mark.
	Leaving bool
	// Skip is set if a person gave its items up.
	Skip bool
	// Receipt is the one that is recorded on it.
	Receipt *contract.Receipt
	// Policy is the one that was written with the leaving mark; empty if none was. ReleasesUnreadable was written
	// beside it.
	Policy             string
	ReleasesUnreadable bool

	// Set is the StatefulSet that has a StatefulSetDrain and the claim, and Member the claim's ordinal; "" for a
	// Memcached's claim.
	Set    string
	Member int32
	// Outside is set if the member has not been wanted since the claim was made. Emptied is set if a drainer
	// of the claim has ended well.
	Outside, Emptied bool

	// Smallest is the smallest size above 0 that was wanted while the claim existed.
	Smallest int32
	// ReceiptsLeft are those that its drainers left.
	ReceiptsLeft []*contract.Receipt
}

// Job is that of a drain or of a move.
type Job struct {
	Name, UID string
	// Claim is the claim's name, and ClaimUID the UID in the Job's command.
	Claim, ClaimUID string
	// Servers are those that it drains into, as host:port; nil if they are unknown.
	Servers   []string
	Survivors int32
	// Unfinished is set if it may start a pod.
	Unfinished bool
	// Moves is set if the Job moves items between members, or copies them from another cache. Prepared is set
	// if none of its pods moves anything before it is told to begin.
	Moves, Prepared bool
}

// Volume is a PersistentVolume.
type Volume struct {
	Name string
	// Retained is set if its reclaim policy keeps it when its claim goes.
	Retained bool
	// Claim is the UID of the one that it is bound to; empty if it waits for one.
	Claim string
}

// Item is a key, as a client knows it. Values are numbered from 1 in the order
// in which the client stored them.
type Item struct {
	Key string
	// Owner is the server that clients ask for it.
	Owner string
	// Stored is the last value that was acknowledged to the client; 0 if the key need not be there (never
	// stored, deleted, expired).
	Stored int64
	// Found is the value on each server that has one.
	Found map[string]int64
}

func (s *State) claim(uid string) *Claim {
	i := slices.IndexFunc(s.Claims, func(c Claim) bool { return c.UID == uid })
	if i < 0 {
		return nil
	}
	return &s.Claims[i]
}

func (s *State) claimNamed(name string) *Claim {
	i := slices.IndexFunc(s.Claims, func(c Claim) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Claims[i]
}

func (s *State) pod(uid string) *Pod {
	i := slices.IndexFunc(s.Pods, func(p Pod) bool { return p.UID == uid })
	if i < 0 {
		return nil
	}
	return &s.Pods[i]
}

func (s *State) job(uid string) *Job {
	i := slices.IndexFunc(s.Jobs, func(j Job) bool { return j.UID == uid })
	if i < 0 {
		return nil
	}
	return &s.Jobs[i]
}

func (s *State) volume(name string) *Volume {
	i := slices.IndexFunc(s.Volumes, func(v Volume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Volumes[i]
}

func (s *State) item(key string) *Item {
	i := slices.IndexFunc(s.Items, func(i Item) bool { return i.Key == key })
	if i < 0 {
		return nil
	}
	return &s.Items[i]
}

// ending tells whether the cluster or its namespace is being deleted.
func (s *State) ending() bool {
	return !s.Cluster.Exists || s.Cluster.Deleting || s.NamespaceTerminating
}

// serves tells whether clients use the pod: it is at work, and one of the wanted members.
func (s *State) serves(p *Pod) bool {
	return !p.drainer() && p.AtWork && s.Members.Exists && p.Ordinal < s.Members.Replicas
}

// mounts returns what a pod has mounted: the volume if it is known, else the claim; empty for none. A claim in
// use can't be replaced by another one of its name.
func (s *State) mounts(p *Pod) string { return s.volumeOf(p.Claim) }

// volumeOf is the volume of a claim if it is known, else the claim's name.
func (s *State) volumeOf(claim string) string {
	if c := s.claimNamed(claim); c != nil && c.Volume != "" {
		return c.Volume
	}
	return claim
}

// share tells whether two pods have mounted the same volume.
func (s *State) share(p, q *Pod) bool {
	if p.Claim == "" || q.Claim == "" {
		return false
	}
	if s.mounts(p) == s.mounts(q) {
		return true
	}
	return slices.ContainsFunc(p.Claims, func(claim string) bool {
		return slices.ContainsFunc(q.Claims, func(other string) bool { return s.volumeOf(claim) == s.volumeOf(other) })
	})
}
