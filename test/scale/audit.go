package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
)

// call is what requests are counted by.
type call struct{ verb, resource string }

func (c call) String() string { return c.verb + " " + c.resource }

// write tells whether the call changes something, and read whether it asks for
// something; a watch is neither.
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

// audit counts the manager's requests out of the API server's audit log, which
// is written before a request is answered.
type audit struct {
	mu     sync.Mutex
	path   string
	offset int64
	counts counts
	failed int // requests that the API server refused
}

// read counts what came since the last call.
func (a *audit) read() (counts, int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, err := os.Open(a.path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		return nil, 0, err
	}
	lines := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return maps.Clone(a.counts), a.failed, nil // the rest of a half line comes next time
		}
		if err != nil {
			return nil, 0, err
		}
		a.offset += int64(len(line))
		if err := a.count(line); err != nil {
			return nil, 0, err
		}
	}
}

func (a *audit) count(line []byte) error {
	var event struct {
		Verb      string `json:"verb"`
		ObjectRef struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
		} `json:"objectRef"`
		ResponseStatus struct {
			Code int `json:"code"`
		} `json:"responseStatus"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	c := call{event.Verb, event.ObjectRef.Resource}
	if event.ObjectRef.Subresource != "" {
		c.resource += "/" + event.ObjectRef.Subresource
	}
	if c.resource == "" {
		return nil // discovery
	}
	a.counts[c]++
	if c.write() && event.ResponseStatus.Code >= 400 {
		a.failed++
	}
	return nil
}
