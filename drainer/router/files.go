package router

import (
	"sync"

	"example.com/memcached-operator/drainer/router/eventloop"
)

// A connection needs an open file, and their number is limited. If clients had all of them, the router could reach no
// member again and read no table, and the kubelet could not ask whether it is ready. So some are kept from clients.

const (
	// ownFiles are the open files of the admin port with its connections, of the listeners, of Secrets and tables that
	// are read, and of names that are looked up.
	ownFiles = 128
	// loopFiles are the open files of a loop itself.
	loopFiles = 2
	// moreMembers than twice the present ones may come with the next table.
	moreMembers = 8
)

// files is the bound that was logged last.
type files struct {
	mu   sync.Mutex
	said int64
}

// reserveFiles bounds the open files of clients, so that members and the router's own work have enough.
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
