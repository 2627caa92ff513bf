package main

import (
	"maps"
	"sync"

	"example.com/memcached-operator/test/internal/harness"
)

// call is a kind of request.
type call struct{ verb, resource string }

func (c call) String() string { return c.verb + " " + c.resource }

// write tells whether the call changes something. A watch is neither a write nor a read.
func (c call) write() bool {
	switch c.verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

func (c call) read() bool { return c.verb == "get" || c.verb == "list" }

// counts of calls.
type counts map[call]int

// minus returns the calls since an earlier count.
func (c counts) minus(before counts) counts {
	d := counts{}
	for k, n := range c {
		if n -= before[k]; n != 0 {
			d[k] = n
		}
	}
	return d
}

func (c counts) sum(which func(call) bool) int {
	n := 0
	for k, v := range c {
		if which(k) {
			n += v
		}
	}
	return n
}

// audit counts the manager's requests, from the API server's audit log.
type audit struct {
	mu     sync.Mutex
	log    harness.AuditLog
	counts counts
	failed int // requests that the API server refused
}

// read counts the requests since the last call, and returns all counts.
func (a *audit) read() (counts, int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.log.Read(a.count)
	return maps.Clone(a.counts), a.failed, err
}

func (a *audit) count(event *harness.AuditEvent) {
	c := call{event.Verb, event.ObjectRef.Resource}
	if event.ObjectRef.Subresource != "" {
		c.resource += "/" + event.ObjectRef.Subresource
	}
	if c.resource == "" {
		return // discovery
	}
	a.counts[c]++
	if c.write() && event.ResponseStatus.Code >= 400 {
		a.failed++
	}
}
