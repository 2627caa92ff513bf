package router

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/router/status"
	"example.com/memcached-operator/drainer/wire"
)

// The router answers a stats command with its own counts of requests, and with the members' sums of what is
// stored. Monitoring tools also ask for the kinds settings, items and slabs, and report a server that doesn't
// know these kinds as down. The loop goes on while the members are asked.

const (
	// statsRead is how many members' answers are read at once. One answer may take 200 KiB.
	statsRead = 8
	// statsKept is how long answers are kept, so that many clients that ask cost members no more than one.
	statsKept = time.Second
)

// membersStats are the members' sums for one kind of stats, as of at; nil if no member has answered.
type membersStats struct {
	at   time.Time
	sums map[string]string
	// waiting are the functions that give clients their answer. While there are any, a goroutine asks the
	// members, or finds that it need not.
	mu      sync.Mutex
	waiting []func(answer string)
}

// newMembersStats returns the sums before any member was asked.
func newMembersStats() map[string]*membersStats {
	return map[string]*membersStats{"": {}, "settings": {}, "items": {}, "slabs": {}}
}

// wait adds a client, and tells whether it is the first.
func (m *membersStats) wait(told func(answer string)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = append(m.waiting, told)
	return len(m.waiting) == 1
}

// tell answers the clients that wait.
func (m *membersStats) tell(answer string) {
	m.mu.Lock()
	all := m.waiting
	m.waiting = nil
	m.mu.Unlock()
	for _, told := range all {
		told(answer)
	}
}

// stats answers a stats command.
func (c *client) stats(r *wire.Request) {
	kind := string(r.NextKey())
	members := c.loop.router.membersStats[kind]
	switch {
	case members != nil:
	case kind == "reset":
		c.reply("RESET\r\n")
		return
	default:
		c.reply(wire.AnswerError)
		return
	}
	l := c.loop
	s := l.slot()
	c.push(s)
	s.pending = true
	c.jobs++ // the client's next request comes after this one
	told := func(answer string) { l.poller.Post(func() { l.told(s, answer) }) }
	if members.wait(told) {
		l.router.goroutines.Go(func() { members.tell(l.router.stats(kind)) })
	}
}

// told is called with the answer to a stats command.
func (l *loop) told(s *slot, answer string) {
	s.pending, s.done = false, true
	c := s.client
	if c == nil {
		l.release(s)
		return
	}
	c.jobs--
	if !l.room(len(answer)) {
		answer = answerNoRoom
	}
	c.hold(s, []byte(answer))
	if c.head == s {
		c.advance()
	}
	c.goOn()
}

// stats returns the answer for a kind.
func (r *Router) stats(kind string) string {
	sums := r.askMembers(kind)
	switch {
	case kind == "":
		s := status.Statistics{Began: r.began, Version: r.memberVersion(), Connected: r.clients.Connected(), Accepted: r.clients.Accepted(),
			Threads: len(r.loops), Counts: r.boards().Counts(), Sums: sums}
		return s.Answer()
	case sums == nil:
		return answerNoMember
	}
	return statsAnswer(sums)
}

func statsAnswer(all map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "STAT %s %s\r\n", name, all[name])
	}
	return b.String() + wire.AnswerEnd
}

// askMembers returns the sums of the members that answer. For settings, it returns the answer of the first
// member on the list.
func (r *Router) askMembers(kind string) map[string]string {
	m := r.membersStats[kind]
	if time.Since(m.at) < statsKept {
		return m.sums
	}
	servers := r.table.Load().Servers()
	var asking sync.WaitGroup
	var mu sync.Mutex
	var sums map[string]string
	first := len(servers)
	reading := make(chan struct{}, statsRead)
	for i, server := range servers {
		asking.Go(func() {
			r.askMember(kind, server.Address(), reading, func(answer map[string]string) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case sums == nil, kind == "settings" && i < first:
					sums, first = answer, i
				case kind != "settings":
					status.Add(sums, answer)
				}
			})
		})
	}
	asking.Wait()
	m.sums, m.at = sums, time.Now()
	return sums
}

// askMember calls told if the member answers. reading is full if no further answer may be read for now.
func (r *Router) askMember(kind, address string, reading chan struct{}, told func(answer map[string]string)) {
	ctx, cancel := context.WithTimeout(r.serving, r.config.MemberTimeout) // a member that takes longer is not in the sums
	defer cancel()
	conn, err := r.config.Dialer.Dial(ctx, address)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	reading <- struct{}{} // earlier members have answered a moment ago, and take no longer than ctx
	defer func() { <-reading }()
	if answer, err := conn.Stats(kind); err == nil {
		told(answer)
	}
}
