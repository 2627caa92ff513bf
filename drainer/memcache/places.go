package memcache

import (
	"fmt"
	"net"
	"sync"
)

// Places are where the servers of one task were reached last, by their addresses. A name is looked up for each
// connection. While a pod is replaced, its name may still lead to where it was, which may be another server's place by
// now: an item that is added there is not where its clients look, and a delete at one of the two is one at the other.
type Places struct {
	mu    sync.Mutex
	at    map[string]string
	apart bool
}

// TwinError is about a name that leads to where another server is. Trying again would not tell which of the two is
// there: everything that was found out about both has to be found out anew.
type TwinError struct{ place, other string }

func (e *TwinError) Error() string {
	return fmt.Sprintf("its name resolves to %s, which was the address of %s", e.place, e.other)
}

// Is lets it count as a server that can't be reached.
func (e *TwinError) Is(target error) bool { return target == ErrUnreachable }

// KeepApart refuses, from now on, a connection that leads to another server's place.
func (p *Places) KeepApart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apart = true
}

// take the place of a server that was reached by address. A nil Places keeps nothing apart.
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
