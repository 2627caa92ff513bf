package model

// people adds the actions that people may take.
func (s *state) people(x *expansion) {
	if s.budget.deeds == 0 {
		return
	}
	x.class = deed
	alive := s.live.cluster.exists && !s.live.cluster.deleting
	for size := range int8(ordinals + 1) {
		if alive && size != s.live.cluster.size && (x.model.options.Largest == 0 || size <= x.model.options.Largest) {
			x.add(event{what: scale, a: size}, func(n *state) { n.live.cluster.size = size })
		}
	}
	if x.model.options.Moving && alive {
		s.routingDeeds(x)
	}
	if x.model.options.Deletes {
		s.deletions(x)
	}
	if x.model.options.OnlyScale {
		return
	}
	if alive {
		x.add(event{what: deleteCluster}, func(n *state) { n.deleteCluster() })
	}
	if !s.ending {
		x.add(event{what: deleteNamespace}, func(n *state) {
			n.forget()
			n.ending = true
		})
	}
	if s.live.members.exists {
		x.add(event{what: deleteStatefulSet}, func(n *state) { n.live.members = statefulSet{} })
	}
	for i := range int8(ordinals) {
		for slot := range int8(slots) {
			s.claimDeeds(x, i, slot)
			if s.live.jobs[i][slot].state != noJob {
				x.add(event{what: deleteJobByHand, a: i, b: slot}, func(n *state) { n.live.jobs[i][slot] = job{} })
			}
		}
	}
}

// deletions adds that a member's claim and pod are deleted together.
func (s *state) deletions(x *expansion) {
	for i := range int8(ordinals) {
		if c := &s.live.claims[i][0]; c.exists && !c.deleting && s.live.pods.members[i].state == running {
			x.add(event{what: deleteClaimAndPod, a: i}, func(n *state) {
				n.live.claims[i][0].deleting = true
				n.live.pods.members[i] = pod{}
			})
		}
	}
}

func (s *state) claimDeeds(x *expansion, i, slot int8) {
	c := &s.live.claims[i][slot]
	if !c.exists {
		return
	}
	if !c.deleting {
		x.add(event{what: deleteClaimByHand, a: i, b: slot}, func(n *state) { n.live.claims[i][slot].deleting = true })
	}
	for r := range requests {
		if r != c.request {
			x.add(event{what: annotate + happening(r), a: i, b: slot}, func(n *state) {
				n.live.claims[i][slot].request = r
				if r == skip {
					n.forget()
				}
			})
		}
	}
}

// faults adds the faults that may happen.
func (s *state) faults(x *expansion) {
	if s.budget.faults == 0 {
		return
	}
	x.class = mishap
	if s.todo.n > 0 {
		x.add(event{what: operatorDies}, func(n *state) { n.todo = steps{} })
	}
	if s.todo.n > 1 && s.todo.todo[0].members() {
		x.add(event{what: membersFail}, (*state).skipMembers) // the other steps are taken
	}
	for i := range int8(ordinals) {
		if s.live.pods.members[i].state == running {
			x.add(event{what: losePod, a: i}, func(n *state) { n.live.pods.members[i] = pod{} })
		}
		for slot := range int8(slots) {
			if d := s.live.pods.drainers[i][slot]; d.state == running && s.live.instanceOf(i, d.instance) != nil {
				x.add(event{what: loseDrainer, a: i, b: slot}, func(n *state) { n.live.pods.drainers[i][slot] = drainer{} })
				x.add(event{what: drainFails, a: i, b: slot}, func(n *state) { n.endDrain(i, slot, failed, noReceipt) })
				x.add(event{what: drainLies, a: i, b: slot}, func(n *state) { n.endDrain(i, slot, succeeded, shortReceipt) })
			}
		}
	}
}

// catchUp adds that lagging caches catch up.
func (s *state) catchUp(x *expansion) {
	for k := range kinds {
		switch {
		case s.passes[k]:
			x.add(event{what: lagPassed, a: int8(k)}, func(n *state) {
				n.seen.copyKind(k, &n.between)
				n.between.copyKind(k, &objects{})
				n.passes[k] = false
			})
		case s.lags[k]:
			x.add(event{what: lagEnds, a: int8(k)}, func(n *state) { n.lags[k] = false })
		}
	}
}
