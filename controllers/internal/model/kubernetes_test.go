package model

// kubernetes adds the possible events of controllers and kubelets. All of them happen sooner or
// later, unless there is a fault.
func (s *state) kubernetes(x *expansion) {
	for i := range int8(ordinals) {
		s.memberEvents(x, i)
		for slot := range int8(slots) {
			s.claimEvents(x, i, slot)
			s.volumeEvents(x, i, slot)
			s.jobEvents(x, i, slot)
			s.drainerEvents(x, i, slot)
		}
	}
	if s.live.pods.recent {
		x.add(event{what: membersAge}, func(n *state) { n.live.pods.recent = false })
	}
	if owner := &s.live.cluster; s.live.members.exists && (!owner.exists || s.ending) {
		x.add(event{what: collectMembers}, func(n *state) { n.live.members = statefulSet{} })
	}
	if s.ending && s.live.cluster.exists && !s.live.cluster.deleting {
		x.add(event{what: endCluster}, func(n *state) { n.deleteCluster() })
	}
}

// memberEvents adds the events of the StatefulSet's controller and of the kubelet. A pod may take
// any time to stop, because any event may come before its end.
func (s *state) memberEvents(x *expansion, i int8) {
	set, p, c := &s.live.members, &s.live.pods.members[i], &s.live.claims[i][0]
	switch wanted := set.exists && i < set.replicas && !s.ending; {
	case wanted && c.exists && s.onDeadNode(i, c.generation):
	case wanted && p.state != running && (!c.exists || !c.deleting):
		x.add(event{what: startMember, a: i}, func(n *state) {
			n.makeClaim(i)
			n.provision(i)
			n.live.pods.members[i] = pod{running, n.live.claims[i][0].generation}
			n.live.pods.recent = x.model.options.Moving && x.model.options.Cluster.Patience > 0
		})
		if s.budget.faults > 0 && p.state == noPod {
			x.as(mishap).add(event{what: delayMember, a: i}, func(n *state) {
				n.makeClaim(i)
				n.live.pods.members[i] = pod{state: pending}
			})
		}
	case !wanted && p.state != noPod:
		x.add(event{what: stopMember, a: i}, func(n *state) { n.live.pods.members[i] = pod{} })
	}
}

// makeClaim creates the claim from the StatefulSet's template, unless it exists.
func (s *state) makeClaim(i int8) {
	if !s.live.claims[i][0].exists {
		s.live.claims[i][0] = claim{exists: true, finalizer: true, protected: true, generation: s.nextGeneration(i)}
	}
}

func (s *state) nextGeneration(i int8) int8 {
	m := &s.past[i]
	m.generation = m.generation%(many-1) + 1
	return m.generation
}

func (s *state) nextInstance(i int8) int8 {
	m := &s.past[i]
	m.instance = m.instance%(many-1) + 1
	return m.instance
}

// provision creates a volume for the member's claim, unless it has one.
func (s *state) provision(i int8) {
	if c := &s.live.claims[i][0]; c.volume == 0 {
		c.volume = c.generation
		*free(s.volumes[i][:]) = volume{name: c.generation, bound: c.generation}
	}
}

// claimEvents adds the events of the controllers that protect and bind claims.
func (s *state) claimEvents(x *expansion, i, slot int8) {
	c := s.live.claims[i][slot]
	if !c.exists {
		return
	}
	if c.fresh > 0 {
		x.add(event{what: timePasses, a: i, b: slot}, func(n *state) { n.live.claims[i][slot].fresh-- })
	}
	if s.ending && !c.deleting {
		x.add(event{what: endClaim, a: i, b: slot}, func(n *state) { n.live.claims[i][slot].deleting = true })
	}
	if c.deleting && c.protected && !s.live.pods.used(i, c.generation) {
		x.add(event{what: unprotectClaim, a: i, b: slot}, func(n *state) { n.live.claims[i][slot].protected = false })
	}
	if v := s.volumeNamed(i, c.volume); c.pending && v != nil && v.of == c.of && v.bound == 0 {
		x.add(event{what: bindClaim, a: i, b: slot}, func(n *state) {
			n.live.claims[i][slot].pending = false
			n.volumeNamed(i, c.volume).bound = c.generation
		})
	}
}

// volumeEvents deletes a volume when the claim that it is bound to is gone.
func (s *state) volumeEvents(x *expansion, i, slot int8) {
	if v := s.volumes[i][slot]; v.bound != 0 && s.live.claimOf(i, v.bound) == nil {
		x.add(event{what: volumeGoes, a: i, b: slot}, func(n *state) { n.volumes[i][slot] = volume{} })
	}
}

// jobEvents adds the events of the Job controller and of the garbage collector.
func (s *state) jobEvents(x *expansion, i, slot int8) {
	j := s.live.jobs[i][slot]
	if j.state == noJob {
		return
	}
	if !s.live.cluster.exists || s.ending {
		x.add(event{what: collectJob, a: i, b: slot}, func(n *state) { n.live.jobs[i][slot] = job{} })
	}
	if s.retryable(i, &j) && !j.due {
		x.add(event{what: retryDue, a: i, b: slot}, func(n *state) { n.live.jobs[i][slot].due = true })
	}
	if j.state != active {
		return
	}
	if s.live.pods.drainerOf(i, j.instance) != nil || s.ending {
		return
	}
	made := drainer{state: running, generation: j.generation, target: j.target, instance: j.instance, waits: j.waits}
	if c := s.live.claimOf(i, j.generation); !j.target.moves() && (c == nil || c.deleting || s.onDeadNode(i, j.generation)) {
		made.state = pending // no pod can mount the volume
	} else if s.budget.faults > 0 {
		x.as(mishap).add(event{what: delayDrainer, a: i, b: slot}, func(n *state) {
			late := made
			late.state = pending
			*free(n.live.pods.drainers[i][:]) = late
		})
	}
	x.add(event{what: startDrainer, a: i, b: slot}, func(n *state) { *free(n.live.pods.drainers[i][:]) = made })
}

// retryable tells whether the Job failed for a reason that may pass by itself.
func (s *state) retryable(i int8, j *job) bool {
	d := s.live.pods.drainerOf(i, j.instance)
	return j.state == gaveUp && (j.target.moves() || d == nil) || j.state == complete && (d == nil || d.said != goodReceipt)
}

// drainerEvents adds the events of the kubelet and of the garbage collector. A Job knows of its
// drainer's end at once.
func (s *state) drainerEvents(x *expansion, i, slot int8) {
	d := s.live.pods.drainers[i][slot]
	if d.state == noPod {
		return
	}
	if d.state == running && !d.waits {
		s.itemEvents(x, i, &d)
	}
	c := s.live.claimOf(i, d.generation)
	switch orphan := s.live.instanceOf(i, d.instance) == nil || s.ending; {
	case orphan:
		x.add(event{what: endDrainer, a: i, b: slot}, func(n *state) { n.live.pods.drainers[i][slot] = drainer{} })
	case d.state == pending && (d.target.moves() || c != nil && !c.deleting && !s.onDeadNode(i, d.generation)):
		x.add(event{what: runDrainer, a: i, b: slot}, func(n *state) { n.live.pods.drainers[i][slot].state = running })
	case d.state == running && !d.target.moves() && s.dead != [ordinals]int8{} && !s.reaches(i, &d):
		x.add(event{what: unreached, a: i, b: slot}, func(n *state) {
			n.live.pods.drainers[i][slot] = drainer{}
			if j := n.live.instanceOf(i, d.instance); j != nil {
				j.state = gaveUp
			}
		})
	case d.state == running && !d.waits && s.reaches(i, &d):
		x.add(event{what: drained, a: i, b: slot}, func(n *state) {
			n.moveItem(i, &d, d.target.moves())
			n.endDrain(i, slot, succeeded, goodReceipt)
		})
	}
}

func (s *state) endDrain(i, slot int8, how podState, said receipt) {
	d := &s.live.pods.drainers[i][slot]
	d.state, d.said = how, said
	if d.target.moves() && said == goodReceipt {
		s.past[i].said.generation, s.past[i].said.target = d.generation, d.target
	}
	if j := s.live.instanceOf(i, d.instance); j != nil {
		j.state = map[podState]jobState{succeeded: complete, failed: gaveUp}[how]
	}
}

// deleteCluster deletes the Memcached as the API server does: it is gone when it has no finalizer.
func (s *state) deleteCluster() {
	s.forget()
	if s.live.cluster.deleting = true; !s.live.cluster.finalizer {
		s.live.cluster = cluster{}
	}
}
