// Package drainer is for all sample drainers: a StatefulSetDrain's words to a drainer, in its environment,
// and a drainer's words about its work.
package drainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Member is the departed member, and those that stay.
type Member struct {
	StatefulSet, Service, Namespace string
	Ordinal, Start, Replicas        int
}

// FromEnvironment reads the operator's variables.
func FromEnvironment(get func(string) string) (Member, error) {
	m := Member{StatefulSet: get("STATEFULSET_NAME"), Service: get("SERVICE_NAME"), Namespace: get("NAMESPACE")}
	for name, to := range map[string]*int{"ORDINAL": &m.Ordinal, "ORDINAL_START": &m.Start, "REPLICAS": &m.Replicas} {
		n, err := strconv.Atoi(get(name))
		if err != nil || n < 0 {
			return m, fmt.Errorf("%s=%q is no number", name, get(name))
		}
		*to = n
	}
	switch {
	case m.Replicas == 0:
		return m, errors.New("no member stays that could take the data")
	case m.StatefulSet == "" || m.Service == "" || m.Namespace == "":
		return m, errors.New("STATEFULSET_NAME, SERVICE_NAME and NAMESPACE must be set: members are found by DNS")
	}
	return m, nil
}

// Survivors are the DNS names of the members that stay, in the order of their ordinals, with a port.
func (m Member) Survivors(port int) []string {
	names := make([]string, m.Replicas)
	for i := range names {
		host := fmt.Sprintf("%s-%d.%s.%s.svc", m.StatefulSet, m.Start+i, m.Service, m.Namespace)
		names[i] = net.JoinHostPort(host, strconv.Itoa(port))
	}
	return names
}

// Count is how far a drainer is. Every element that it has found is moved or skipped at the end.
type Count struct {
	Found   int `json:"found"`
	Moved   int `json:"moved"`
	Skipped int `json:"skipped"`
	// Error says why the drain has failed.
	Error string `json:"error,omitempty"`
}

// Done tells whether the drain is complete.
func (c Count) Done() error {
	if c.Found != c.Moved+c.Skipped {
		return fmt.Errorf("%d found, but %d moved and %d skipped", c.Found, c.Moved, c.Skipped)
	}
	return nil
}

// Progress prints lines for the operator, one a second at most.
type Progress struct {
	To   io.Writer
	last time.Time
}

// Print prints how far the drainer is, if the last line was some time ago, or if it is done.
func (p *Progress) Print(c Count) {
	done := c.Moved + c.Skipped
	if done < c.Found && time.Since(p.last) < time.Second {
		return
	}
	p.last = time.Now()
	fmt.Fprintf(p.To, `{"done":%d,"total":%d}`+"\n", done, c.Found)
}

// Terminate writes the termination message, and returns the exit code.
func Terminate(file string, c Count, failed error) int {
	if failed == nil {
		failed = c.Done()
	}
	if failed != nil {
		c.Error = failed.Error()
		if len(c.Error) > 1000 { // of the 4096 bytes that Kubernetes keeps
			c.Error = c.Error[:1000]
		}
		fmt.Fprintln(os.Stderr, failed)
	}
	text, _ := json.Marshal(c) // numbers and a string
	if err := os.WriteFile(file, text, 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if failed != nil {
		return 1
	}
	return 0
}

// Lock takes the volume: two drainers of one volume must never run side by side, even if a node
// reports the first one's end too early. The lock lasts as long as the file is open here, or in a
// process that it was given to.
func Lock(file string, within time.Duration) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("another drainer uses the volume: lock %s: %w", file, err)
		}
	}
}

// Retry tries a step again until it succeeds, until it has failed for so long, or until the context
// ends.
func Retry(ctx context.Context, within time.Duration, step func() error) error {
	for until := time.Now().Add(within); ; {
		err := step()
		if err == nil || !time.Now().Before(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
