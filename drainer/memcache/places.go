package memcache

import (
	"fmt"
	"net"
	"sync"
)

// Places has where the servers of one task were reached last, by their addresses. A name is looked up for each
// connection. While a pod is replaced, its name may still lead to its old place, which may be another server's by
// now. Then clients don't look where an item is added, and a delete at one server deletes at the other.
type Places struct {
	mu    sync.Mutex
	at    map[string]string
	apart bool
}

// TwinError means that a name leads to the place of another server. A retry would not tell which of the two is
// there: all that is known about both has to be asked again.
type TwinError struct{ place, other string }

func (e *TwinError) Error() string {
	return fmt.Sprintf("its name resolves to %s, which was the address of %s", e.place, e.other)
}

// Is makes a TwinError count as a server that can't be reached.
func (e *TwinError) Is(target error) bool { return target == ErrUnreachable }

// KeepApart refuses, from now on, a connection that leads to another server's place.
func (p *Places) KeepApart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apart = true
}

// take records the place of a server that was reached by address, or returns an error if it is another
// server's. A nil Places keeps nothing apart.
func (p *Places) take(address string, conn net.Conn) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	place := conn.RemoteAddr().String()
	for other, at := range p.at {
		if p.apart && at == place && other != address {
			return &TwinError{place, other}
		}
	}
	if p.at == nil {
		p.at = map[string]string{}
	}
	p.at[address] = place
	return nil
}
