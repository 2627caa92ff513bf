package router

import (
	"sync"

	"example.com/memcached-operator/drainer/router/eventloop"
)

// A connection that finds no open file left can't be made. If clients had all of them, no member could be reached again,
// no table could be read, and the kubelet could not ask whether the router is ready. So clients leave some.

const (
	// ownFiles are those of the admin port with its connections, of the listeners, of Secrets and tables that are read,
	// and of names that are looked up.
	ownFiles = 128
	// loopFiles are those of a loop itself.
	loopFiles = 2
	// moreMembers than twice the present ones may come with the next table.
	moreMembers = 8
)

// files is what was said of them last.
type files struct {
	mu   sync.Mutex
	said int64
}

// reserveFiles bounds the open files of clients: those of all that is needed beside them stay free.
func (r *Router) reserveFiles(t *Table) {
	c := &r.config
	if c.MaxFiles <= 0 {
		return
	}
	const dialled = 1 // a connection that is being made
	member := int64(dialled)
	if c.Fence {
		member++
	}
	if c.Dialer.TLSDir != "" {
		member += eventloop.TLSFiles * int64(c.Loops)
	} else {
		member += int64(c.Loops)
	}
	reserved := ownFiles + loopFiles*int64(c.Loops) + member*int64(2*len(t.Servers())+moreMembers)
	most := max(c.MaxFiles-reserved, c.MaxFiles/4)
	r.clients.MostFiles.Store(most)
	each := int64(eventloop.PlainFiles)
	if c.TLS != nil {
		each = eventloop.TLSFiles
	}
	r.files.mu.Lock()
	defer r.files.mu.Unlock()
	if clients := most / each; clients < int64(c.MaxConnections) && clients != r.files.said {
		r.files.said = clients
		c.Logf("clients may have %d connections instead of %d: the process may have %d open files, and keeps %d of them for members and for itself",
			clients, c.MaxConnections, c.MaxFiles, c.MaxFiles-most)
	}
}
