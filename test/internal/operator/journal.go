package operator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Write is a request of the operator that changes an object.
type Write struct {
	// Verb is the HTTP method in the API's words: create, patch, update, delete.
	Verb string
	// Resource is plural, with its subresource: "jobs", "memcacheds/status".
	Resource string
	// Name is the object's; empty for a create.
	Name string
	// Body is the request's body.
	Body string
	// Status is the answer's; 0 if there was none.
	Status int
}

func (w Write) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", w.Verb, w.Resource, w.Name))
}

// Fault is a fault of a write.
type Fault int

// The faults.
const (
	// NoFault: the write is sent unchanged.
	NoFault Fault = iota
	// DieBefore: the operator dies before the write is sent.
	DieBefore
	// DieAfter: the write is applied, and the operator dies before it knows.
	DieAfter
	// Conflict: the answer is 409, and nothing is applied.
	Conflict
	// ServerError: the answer is 500, and nothing is applied.
	ServerError
	// AnswerLost: the write is applied, and its answer is lost.
	AnswerLost
	// Denied: a webhook denies the write, and chooses no code for its answer.
	Denied
)

// Journal has the operator's writes in order. Journal only counts events, which are sent in the background.
type Journal struct {
	mu     sync.Mutex
	writes []Write
	events int
	// fault is asked before each write. n is the number of writes before it.
	fault func(n int, w Write) Fault
}

// Inject sets the function that chooses the faults of later writes.
func (j *Journal) Inject(fault func(n int, w Write) Fault) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fault = fault
}

// Writes returns the writes so far, without events.
func (j *Journal) Writes() []Write {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.writes)
}

// Events is the number of requests that made or changed an event.
func (j *Journal) Events() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.events
}

// begin records a write. begin returns the write's index and its fault.
func (j *Journal) begin(w Write) (int, Fault) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if w.Resource == "events" {
		j.events++
		return -1, NoFault
	}
	n := len(j.writes)
	j.writes = append(j.writes, w)
	if j.fault == nil {
		return n, NoFault
	}
	return n, j.fault(n, w)
}

func (j *Journal) answered(n, status int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n >= 0 {
		j.writes[n].Status = status
	}
}

// writeOf returns the write that a request is; false if it only reads, or changes nothing (a dry run).
func writeOf(req *http.Request) (Write, bool) {
	verbs := map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}
	verb, ok := verbs[req.Method]
	if !ok || strings.HasPrefix(req.URL.Path, "/apis/authentication.k8s.io/") || req.URL.Query().Get("dryRun") != "" {
		return Write{}, false
	}
	w := Write{Verb: verb}
	_, w.Resource, w.Name = target(req)
	return w, true
}

// target returns the object of a request: the API group, the resource with its subresource, and the name, which
// is empty if the request is for all objects.
func target(req *http.Request) (group, resource, name string) {
	// /api/v1/… or /apis/group/v1/…, then namespaces/NS/, then resource/name/subresource.
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	skip := map[string]int{"api": 2, "apis": 3}[parts[0]]
	if skip == 0 || len(parts) <= skip {
		return "", "", "" // discovery
	}
	if skip == 3 {
		group = parts[1]
	}
	parts = parts[skip:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return group, resource, name
}
