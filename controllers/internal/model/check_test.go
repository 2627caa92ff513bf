package model

import (
	"fmt"
	"slices"

	pvc "example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/test/invariants"
)

// volumeNames has the volumes' names, by ordinal and generation: each claim gets its own volume.
var volumeNames = func() (names [ordinals][many]string) {
	for i := range ordinals {
		for n := range many {
			names[i][n] = fmt.Sprintf("pv-%d.%d", i, n)
		}
	}
	return names
}()

// picture is a state as the invariants see it, with the past that they remember.
func (m *model) picture(s *state) *invariants.State {
	c := &s.live.cluster
	out := &invariants.State{
		Cluster: invariants.Cluster{
			Exists: c.exists, Deleting: c.deleting, Finalizer: c.finalizer, Size: int32(c.size),
			KeepsItems: m.options.Cluster.Policy == pvc.Drain,
		},
		Members:              invariants.StatefulSet{Exists: s.live.members.exists, Replicas: int32(s.live.members.replicas)},
		NamespaceTerminating: s.ending,
		Claims:               make([]invariants.Claim, 0, ordinals),
		Pods:                 make([]invariants.Pod, 0, 2*ordinals),
		Volumes:              make([]invariants.Volume, 0, ordinals),
	}
	for i := range int8(ordinals) {
		s.pictureClaims(out, i)
		s.pictureVolumes(out, i)
		s.picturePods(out, i)
		for _, j := range s.live.jobs[i] {
			if j.state != noJob {
				out.Jobs = append(out.Jobs, invariants.Job{
					Name: string(jobUIDs[i][j.instance]), UID: string(jobUIDs[i][j.instance]), Claim: claimNames[i][0],
					ClaimUID: string(claimUIDs[i][j.generation]), Survivors: int32(j.target.size), Unfinished: j.state == active,
					Moves: j.target.moves(),
				})
			}
		}
	}
	return out
}

func (s *state) pictureClaims(out *invariants.State, i int8) {
	for slot := range s.live.claims[i] {
		c, past := &s.live.claims[i][slot], &s.past[i].claims[slot]
		if !c.exists {
			continue
		}
		claim := invariants.Claim{
			Name: claimNames[i][c.of], UID: string(claimUIDs[i][c.generation]), Ordinal: int32(i),
			HasFinalizer: c.finalizer, Deleting: c.deleting, Leaving: c.leaving, Skip: c.request == skip,
			Receipt: receipts[i][c.generation][c.receipt], Smallest: int32(past.smallest),
		}
		if c.of != 0 {
			claim.Ordinal = -1
		}
		if c.volume != 0 {
			claim.Volume = volumeNames[i][c.volume]
		}
		for r, heard := range past.heard {
			if heard {
				claim.ReceiptsLeft = append(claim.ReceiptsLeft, receipts[i][c.generation][r])
			}
		}
		out.Claims = append(out.Claims, claim)
	}
}

func (s *state) pictureVolumes(out *invariants.State, i int8) {
	for slot := range s.volumes[i] {
		v, past := &s.volumes[i][slot], &s.past[i].volumes[slot]
		if v.name == 0 {
			continue
		}
		volume := invariants.Volume{Name: volumeNames[i][v.name]}
		if v.bound != 0 {
			volume.Claim = string(claimUIDs[i][v.bound])
		}
		out.Volumes = append(out.Volumes, volume)
		out.Bound = append(out.Bound, volume.Name) // each is bound when it is made
		if past.left {
			out.DepartedVolumes = append(out.DepartedVolumes, volume.Name)
		}
		if past.givenUp {
			out.GivenUp = append(out.GivenUp, volume.Name)
		}
	}
}

var podNames, podUIDs, drainerNames = func() (names [ordinals]string, uids, drainers [ordinals][many]string) {
	for i := range ordinals {
		names[i] = fmt.Sprintf("cache-%d", i)
		for n := range many {
			uids[i][n] = fmt.Sprintf("pod-%d.%d", i, n)
			drainers[i][n] = fmt.Sprintf("drainer-%d.%d", i, n)
		}
	}
	return names, uids, drainers
}()

func (s *state) picturePods(out *invariants.State, i int8) {
	if p := s.live.pods.members[i]; p.state != noPod {
		out.Pods = append(out.Pods, invariants.Pod{
			Name: podNames[i], UID: podUIDs[i][p.generation], Ordinal: int32(i), Claim: claimNames[i][0],
			AtWork: p.state == running,
		})
	}
	for _, d := range s.live.pods.drainers[i] {
		if d.state == noPod {
			continue
		}
		name, of := drainerNames[i][d.instance], int8(0)
		if d.target.moves() {
			out.Pods = append(out.Pods, invariants.Pod{
				Name: name, UID: name, Ordinal: -1, AtWork: d.state == running, Moves: true, Survivors: int32(d.target.size),
			})
			continue
		}
		if c := s.live.claimOf(i, d.generation); c != nil {
			of = c.of
		}
		out.Pods = append(out.Pods, invariants.Pod{
			Name: name, UID: name, Ordinal: -1, Claim: claimNames[i][of], ReadOnly: true,
			AtWork:      d.state == running,
			DrainsClaim: string(claimUIDs[i][d.generation]), Survivors: int32(d.target.size),
			Receipt: receipts[i][d.generation][d.said],
		})
	}
}

// remember stores the past that the invariants remember.
func (s *state) remember(p *invariants.State) {
	for i := range int8(ordinals) {
		past := ordinalPast{generation: s.past[i].generation, instance: s.past[i].instance, said: s.past[i].said}
		for slot := range int8(slots) {
			if c := &s.live.claims[i][slot]; c.exists {
				past.claims[slot] = rememberClaim(p, i, c)
			}
			if v := &s.volumes[i][slot]; v.name != 0 {
				name := volumeNames[i][v.name]
				past.volumes[slot] = volumePast{slices.Contains(p.DepartedVolumes, name), slices.Contains(p.GivenUp, name)}
			}
		}
		s.past[i] = past
	}
}

func rememberClaim(p *invariants.State, i int8, c *claim) claimPast {
	var past claimPast
	for k := range p.Claims {
		if p.Claims[k].UID != string(claimUIDs[i][c.generation]) {
			continue
		}
		past.smallest = int8(min(p.Claims[k].Smallest, ordinals+1))
		for r := range past.heard {
			past.heard[r] = slices.Contains(p.Claims[k].ReceiptsLeft, receipts[i][c.generation][r])
		}
	}
	return past
}

// atRest returns what is wrong with a state in which no more events happen by themselves.
func (m *model) atRest(s *state) []string {
	p := m.picture(s)
	var last plan.Plan
	if v := s.sight(); !s.plansNothing(&v) {
		_, last = m.plan(&v)
	}
	for _, d := range last.Drains {
		p.Cluster.Shown = append(p.Cluster.Shown, d.Claim.Name)
	}
	for _, c := range last.DeletedClaims {
		p.Cluster.Shown = append(p.Cluster.Shown, c.Claim.Name)
	}
	p.AtRest = true
	var wrong []string
	for _, v := range invariants.Check(p, p) {
		wrong = append(wrong, v.String())
	}
	if s.ending || !s.live.cluster.exists {
		return append(wrong, s.leftovers()...)
	}
	if s.dead != [ordinals]int8{} {
		return append(wrong, s.keptLost()...)
	}
	return append(wrong, m.unsettled(s, &last)...)
}

// leftovers returns the objects that a cluster has left behind, and shouldn't have.
func (s *state) leftovers() []string {
	var wrong []string
	if s.live.cluster.exists || s.live.members.exists {
		wrong = append(wrong, "the Memcached is deleted, and it or its StatefulSet is still there")
	}
	for i := range ordinals {
		if s.live.pods.members[i] != (pod{}) || s.live.pods.drainers[i] != [slots]drainer{} || s.live.jobs[i] != [slots]job{} {
			wrong = append(wrong, fmt.Sprintf("the cluster is gone, and ordinal %d has a pod or a Job", i))
		}
		if s.ending && s.live.claims[i] != [slots]claim{} {
			wrong = append(wrong, fmt.Sprintf("the namespace is terminating, and a claim of ordinal %d stays", i))
		}
		for _, v := range s.volumes[i] {
			if v.name != 0 && v.bound == 0 {
				wrong = append(wrong, fmt.Sprintf("the cluster is gone, and a volume of ordinal %d waits for no claim", i))
			}
		}
	}
	return wrong
}

// unsettled returns what keeps a cluster from its wanted size, other than a person's hold, a failed
// drain, a claim that a person deleted, and hibernation.
func (m *model) unsettled(s *state, p *plan.Plan) []string {
	var wrong []string
	if !s.live.cluster.finalizer {
		wrong = append(wrong, "the Memcached has no finalizer")
	}
	if s.live.members.replicas != int8(p.Replicas) {
		wrong = append(wrong, fmt.Sprintf("the StatefulSet has %d replicas, the plan wants %d", s.live.members.replicas, p.Replicas))
	}
	wrong = append(wrong, s.unmoved(p)...)
	if p.Replicas != int32(s.live.cluster.size) && !moveFailed(p) && !m.heldBelow(p, int32(s.live.cluster.size)) {
		wrong = append(wrong, fmt.Sprintf("%d members, %d wanted, and no volume is held back: %q", p.Replicas, s.live.cluster.size, p.SizeBlocked))
	}
	for i := range int8(ordinals) {
		pod := s.live.pods.members[i]
		if i < s.live.members.replicas && pod.state != running {
			wrong = append(wrong, fmt.Sprintf("member %d does not run", i))
		}
		if i >= s.live.members.replicas && pod.state != noPod {
			wrong = append(wrong, fmt.Sprintf("pod %d is still there", i))
		}
	}
	for _, d := range p.Drains {
		if !stays(&d) && (d.Reason != pvc.InTurn || !moveFailed(p)) {
			wrong = append(wrong, fmt.Sprintf("the drain of claim %s rests in phase %s: %s", d.Claim.Name, d.Phase, d.Message))
		}
	}
	return wrong
}

// stays tells whether a departed member's volume may stay until a person acts.
func stays(d *pvc.DrainState) bool {
	return d.Phase == pvc.Failed || d.Phase == pvc.Held || d.Phase == pvc.Kept || d.Reason == pvc.Hibernating
}

// heldBelow tells whether a volume that stays blocks the size.
func (m *model) heldBelow(p *plan.Plan, size int32) bool {
	for i := range p.Drains {
		if d := &p.Drains[i]; d.Claim.Ordinal < size && stays(d) {
			return true
		}
	}
	return false
}
