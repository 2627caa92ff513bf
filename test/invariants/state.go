package invariants

import (
	"slices"

	"example.com/memcached-operator/drainer/contract"
)

// State is a cluster with storage at one moment: its objects, and what the invariants
// remember of the past (Remember).
type State struct {
	Cluster Cluster
	Members StatefulSet
	Pods    []Pod
	Claims  []Claim
	Jobs    []Job
	// Volumes that the claims are or were bound to; nil if nobody looks at them.
	Volumes []Volume
	// NamespaceTerminating: nothing can run here any more.
	NamespaceTerminating bool
	// Told is how many servers clients are told of; 0 if nobody looks at their list.
	Told int32
	// Routed is the state of a ring change that routers are told of; "" if there are none.
	Routed string

	// AtRest: whoever made this state has waited until nothing was under way.
	AtRest bool
	// Versions of all objects by kind and name; nil if nobody looks at them.
	Versions map[string]string
	// Items as a client finds them; nil if there is no client.
	Items []Item

	// DepartedVolumes are those whose member left while others stayed: their values may
	// be old.
	DepartedVolumes []string
	// GivenUp are the volumes that a receipt or a person's word released.
	GivenUp []string
}

// Cluster is the Memcached.
type Cluster struct {
	Exists    bool
	Deleting  bool
	Finalizer bool
	// Size wanted.
	Size int32
	// KeepsItems is false under the policies Retain and Delete.
	KeepsItems bool
	// ReleasesUnreadable: spec.drain.onUnrecoverable is Release.
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
	Name, UID string
	// Ordinal of a member; a drainer has -1.
	Ordinal int32
	// Claim that it mounts, by name, ReadOnly how.
	Claim    string
	ReadOnly bool
	// AtWork: it is bound to a node, and has not ended.
	AtWork bool
	// DrainsClaim is the UID of the claim that a drainer drains by its command, Survivors
	// the number of servers in it.
	DrainsClaim string
	Survivors   int32
	// Moves: it is the drainer of a move. Waits: it was not told to begin. Job is its Job's UID.
	Moves, Waits bool
	Job          string
	// Receipt that it left, if it has ended with one.
	Receipt *contract.Receipt
}

func (p *Pod) drainer() bool { return p.Ordinal < 0 }

// Claim of a member that is, or was.
type Claim struct {
	Name, UID string
	// Ordinal of its member; -1 if its name has none.
	Ordinal int32
	// Volume that it is bound to; empty before that.
	Volume string
	// HasFinalizer by the operator's finalizer.
	HasFinalizer bool
	Deleting     bool
	// Leaving: it carries the mark.
	Leaving bool
	// Skip: a person gave its items up.
	Skip bool
	// Receipt that is recorded on it.
	Receipt *contract.Receipt

	// Smallest size above 0 that was wanted while it existed.
	Smallest int32
	// ReceiptsLeft are those that its drainers left.
	ReceiptsLeft []*contract.Receipt
}

// Job of a drain, or of a move.
type Job struct {
	Name, UID string
	// Claim by name, and by the UID in its command.
	Claim, ClaimUID string
	// Servers that it drains into, host:port; nil if nobody looks at them.
	Servers   []string
	Survivors int32
	// Unfinished: it may start a pod.
	Unfinished bool
	// Moves: it moves what a member has to other members. It mounts no claim. Prepared: its pods
	// move nothing before each is told to begin.
	Moves, Prepared bool
}

// Volume is a PersistentVolume.
type Volume struct {
	Name string
	// Retained: its reclaim policy keeps what is on it when its claim goes.
	Retained bool
	// Claim that it is bound to, by its UID; empty if it waits for one.
	Claim string
}

// Item is a key, as a client knows it. Values are numbered from 1 in the order
// in which the client stored them.
type Item struct {
	Key string
	// Owner is the server that clients ask for it.
	Owner string
	// Stored is the last value whose storing was acknowledged to the client; 0 if it must
	// not be looked for (never stored, deleted, expired).
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

// ending: the cluster or its namespace is being deleted.
func (s *State) ending() bool {
	return !s.Cluster.Exists || s.Cluster.Deleting || s.NamespaceTerminating
}

// serves tells whether clients use the pod: it is at work, and one of the wanted members.
func (s *State) serves(p *Pod) bool {
	return !p.drainer() && p.AtWork && s.Members.Exists && p.Ordinal < s.Members.Replicas
}

// mounts is what a pod has mounted: the volume if it is known, else the claim; empty for
// none. A claim in use can't be replaced by another one of its name.
func (s *State) mounts(p *Pod) string {
	if c := s.claimNamed(p.Claim); c != nil && c.Volume != "" {
		return c.Volume
	}
	return p.Claim
}
