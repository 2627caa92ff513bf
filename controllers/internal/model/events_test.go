package model

import (
	"fmt"
	"strings"
)

// happening is the kind of an event.
type happening uint8

const (
	begin happening = iota
	plans
	acts
	startMember
	delayMember
	stopMember
	endClaim
	unprotectClaim
	bindClaim
	volumeGoes
	startDrainer
	delayDrainer
	runDrainer
	drained
	endDrainer
	collectJob
	collectMembers
	endCluster
	lagPassed
	lagEnds
	scale
	annotate // the argument is an index in the order of requests
	annotateSkip
	annotateRetry
	annotateHold
	deleteCluster
	deleteNamespace
	deleteStatefulSet
	deleteClaimByHand
	deleteJobByHand
	deleteClaimAndPod
	operatorDies
	membersFail
	losePod
	loseDrainer
	drainFails
	drainLies
	writeItem
	copyItem
	moveItem
	reroute
	moveOff
	moveOn
	moving // the argument is an index in the order of requests
	movingSkip
	movingRetry
	deleteList
	retryDue
	timePasses
	membersAge
	nodeDies
	nodeReturns
	unreached
)

// event takes one state to another.
type event struct {
	what happening
	a, b int8
	// lags is one more than the kind whose cache doesn't show the event yet.
	lags kind
}

func (m event) String() string {
	if m.lags > 0 {
		return fmt.Sprintf("%s, AND THE CACHE of %s DOES NOT SHOW IT YET", m.words(), m.lags-1)
	}
	return m.words()
}

func (m event) words() string {
	words := map[happening]string{
		begin: "the beginning", plans: "the operator plans", acts: "the operator acts",
		startMember: "pod %d runs", delayMember: "POD %d DOES NOT START YET", stopMember: "pod %d is gone",
		endClaim: "claim %d is deleted with its namespace", unprotectClaim: "no pod uses claim %d", bindClaim: "claim %d is bound", volumeGoes: "a volume of claim %d is gone",
		startDrainer: "a drainer of claim %d is made", delayDrainer: "A DRAINER of claim %d DOES NOT START YET",
		runDrainer: "a drainer of claim %d runs", drained: "a drainer of claim %d succeeds",
		endDrainer: "a drainer of claim %d is gone", collectJob: "a Job of claim %d is collected",
		collectMembers: "the StatefulSet is collected", endCluster: "the Memcached is deleted with its namespace",
		scale: "A PERSON wants %d members", annotate: "A PERSON takes the annotation off claim %d", annotateSkip: "A PERSON annotates claim %d with skip",
		annotateRetry: "A PERSON annotates claim %d with retry", annotateHold: "A PERSON annotates claim %d with hold", deleteCluster: "A PERSON deletes the Memcached",
		deleteNamespace: "A PERSON deletes the namespace", deleteStatefulSet: "A PERSON deletes the StatefulSet",
		deleteClaimAndPod: "A PERSON deletes claim %d and its pod",
		deleteClaimByHand: "A PERSON deletes claim %d", deleteJobByHand: "A PERSON deletes a Job of claim %d",
		operatorDies: "THE OPERATOR DIES", membersFail: "THE API SERVER FAILS", losePod: "POD %d IS LOST",
		loseDrainer: "A DRAINER of claim %d IS LOST", drainFails: "A DRAINER of claim %d FAILS", drainLies: "A DRAINER of claim %d LEAVES A SHORT RECEIPT",
		writeItem: "a client writes to member %d", copyItem: "a drainer of claim %d adds the item to its owner", moveItem: "a drainer of claim %d moves the item to its owner",
		reroute: "A PERSON names client %d", moveOff: "A PERSON lets items stay where they are", moveOn: "A PERSON lets items be moved",
		moving: "A PERSON takes the move's annotation off claim %d", movingSkip: "A PERSON annotates claim %d with move=skip",
		movingRetry: "A PERSON annotates claim %d with move=retry", deleteList: "A PERSON deletes the clients' list",
		nodeDies: "THE NODE of member %d DIES", nodeReturns: "the node of member %d is back",
		unreached:  "a drainer of claim %d gives up on a member",
		timePasses: "time passes since claim %d was marked", membersAge: "time passes since a member was ready",
		retryDue: "it is time to try the failed Job of claim %d again",
	}
	switch m.what {
	case plans:
		return fmt.Sprintf("the operator plans, and does: %s %d", verb(m.a), m.b)
	case acts:
		return fmt.Sprintf("the operator does: %s %d", verb(m.a), m.b)
	case lagPassed:
		return fmt.Sprintf("the cache of %s shows what was", kind(m.a))
	case lagEnds:
		return fmt.Sprintf("the cache of %s catches up", kind(m.a))
	}
	text := words[m.what]
	if strings.Contains(text, "%d") {
		text = fmt.Sprintf(text, m.a)
	}
	if strings.Contains(text, "claim") && m.b > 0 {
		text += fmt.Sprintf(" (%d)", m.b)
	}
	return text
}

// class is the class of an event.
type class uint8

const (
	progress class = iota // happens sooner or later
	deed                  // of a person
	mishap
	traffic // of clients, at any time
	hope    // may lead to a rest, but no promise may depend on it
)

// expansion collects the events out of one state.
type expansion struct {
	model *model
	from  *state
	class class
	into  *[]expanded
}

type expanded struct {
	move  event
	class class
	to    state
}

// as sets the class of the events that are added next, one at a time.
func (x *expansion) as(c class) *expansion {
	return &expansion{model: x.model, from: x.from, class: c, into: x.into}
}

// add adds an event that makes this change. If the operator sees the change, a cache may lag from here on: it
// shows the state before, then the present one, and only then catches up.
func (x *expansion) add(m event, change func(*state)) {
	to := *x.from
	change(&to)
	to.endClaims()
	switch x.class {
	case deed:
		to.budget.deeds--
	case mishap:
		to.budget.faults--
	}
	x.put(m, x.class, to)
	for k := range kinds {
		if to.budget.lags == 0 || to.lags[k] || !to.live.differs(k, &x.from.live) {
			continue
		}
		late := to
		late.budget.lags--
		late.lags[k], late.passes[k] = true, true
		late.between.copyKind(k, &to.live)
		m.lags = k + 1
		x.put(m, mishap, late)
	}
}

func (x *expansion) put(m event, c class, to state) {
	to.sync()
	x.model.skipNothing(&to)
	*x.into = append(*x.into, expanded{m, c, to})
}

// skipNothing drops steps that would no longer change anything.
func (m *model) skipNothing(s *state) {
	for s.todo.n > 0 {
		try := *s
		if m.do(&try, s.todo.todo[0]) != nothing {
			return
		}
		m.tried(s, nothing, false)
		s.next()
	}
}

// expand finds all events out of a state.
func (m *model) expand(s *state, into []expanded) []expanded {
	into = into[:0]
	x := &expansion{model: m, from: s, into: &into}
	s.operator(x)
	s.kubernetes(x)
	s.catchUp(x)
	s.people(x)
	s.faults(x)
	s.deaths(x)
	s.clients(x)
	return into
}
