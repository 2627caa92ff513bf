package member

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/volume"
)

// listPeriod is how often the supervisor looks at the operator's list, and at the item in which clients find
// the list: a flush or an eviction may have removed that item.
const listPeriod = time.Second

// namesWithin is how long a list with new names is held back until these names can be looked up. Some clients
// look them up once, when they get the list. If that fails, google's gomemcache keeps its old servers until
// the next list.
const namesWithin = 5 * time.Second

// list is the clients' list of the cluster. The operator writes it to an annotation of the pod, which the
// kubelet shows in a file immediately. A new pod has no annotation until the operator has seen the pod, so
// the supervisor begins with the list of its last start.
type list struct {
	s       *supervisor
	address string
	now     atomic.Pointer[contract.List]
	conn    *memcache.Conn
	// kept is the item's text when its CAS was keptCAS. kept is valid as long as conn is open.
	kept    string
	keptCAS uint64
	// held is the version of a list that waits for its names; heldSince is since when.
	held      int64
	heldSince time.Time
	failure   lastFailure
}

// run follows the list and updates the item that clients get, until ctx ends.
func (l *list) run(ctx context.Context) {
	if kept, err := volume.KeptList(l.s.Volume); err == nil {
		l.now.Store(kept)
	}
	l.complain(ctx, l.read(ctx, true)) // at first, because clients may have been given it since the last start
	var serving sync.WaitGroup
	serving.Go(func() { l.serve(ctx) })
	defer serving.Wait()
	defer l.disconnect()
	for {
		l.complain(ctx, errors.Join(l.read(ctx, false), l.keepItem(ctx)))
		if pace.Sleep(ctx, listPeriod) != nil {
			return
		}
	}
}

// complain logs a failure once. complain ignores that memcached can't be asked, which is logged
// elsewhere.
func (l *list) complain(ctx context.Context, err error) {
	if l.failure.isNew(err) && ctx.Err() == nil && !l.s.saving.Load() {
		l.s.std.Logf("clients' list: %s", l.failure)
	}
}

// read adopts the operator's list if it is newer: at once, or when its names can be looked up.
func (l *list) read(ctx context.Context, atOnce bool) error {
	told, err := volume.ReadList(l.s.ListFile)
	switch info, _ := os.Stat(l.s.ListFile); {
	case errors.Is(err, os.ErrNotExist), err != nil && info != nil && info.Size() == 0:
		return nil // the pod is new
	case err != nil:
		return err
	}
	switch before := l.now.Load(); {
	case before == nil:
	case before.Version == told.Version:
		return nil
	case before.Version > told.Version:
		return fmt.Errorf("version %d is ignored, because clients already have version %d", told.Version, before.Version)
	case !atOnce && l.holds(told.Version) && !resolves(ctx, before, told):
		return nil
	}
	l.now.Store(told)
	l.s.std.Logf("clients are told of %d members, version %d", len(told.Nodes), told.Version)
	if err := volume.KeepList(l.s.Volume, told); err != nil {
		return fmt.Errorf("store it on the volume for the next start: %w", err)
	}
	return nil
}

// holds tells whether a list of that version may be held back for now.
func (l *list) holds(version int64) bool {
	if l.held != version {
		l.held, l.heldSince = version, time.Now()
	}
	return time.Since(l.heldSince) < namesWithin
}

// resolves tells whether all names that the previous list didn't have can be looked up.
func resolves(ctx context.Context, before, now *contract.List) bool {
	ctx, cancel := context.WithTimeout(ctx, lookPeriod)
	defer cancel()
	for _, n := range now.Nodes {
		known := slices.ContainsFunc(before.Nodes, func(b contract.Node) bool { return b.Host == n.Host })
		if known || n.Host == "" {
			continue
		}
		if _, err := net.DefaultResolver.LookupHost(ctx, n.Host); err != nil {
			return false
		}
	}
	return true
}

// keepItem sets the item with the list, unless the item is there.
func (l *list) keepItem(ctx context.Context) (err error) {
	list := l.now.Load()
	if list == nil {
		return nil
	}
	if l.conn == nil {
		dialCtx, cancel := context.WithTimeout(ctx, lookPeriod)
		defer cancel()
		if l.conn, err = l.s.Dialer.Dial(dialCtx, l.address); err != nil {
			l.conn = nil
			return nil // memcached is starting or ending
		}
	}
	if err := l.setItem(list.String()); err != nil {
		l.disconnect()
		return fmt.Errorf("set %s: %w", contract.ListKey, err)
	}
	return nil
}

func (l *list) setItem(text string) error {
	if err := l.conn.SetDeadline(time.Now().Add(lookPeriod)); err != nil {
		return err
	}
	// A get for the CAS doesn't count as a client's command: a mover waits until there are no such commands, and knows by
	// the CAS how often the item is set.
	cas, err := l.conn.CAS([]byte(contract.ListKey))
	if err != nil || cas != 0 && cas == l.keptCAS && text == l.kept {
		return err
	}
	l.s.silence.asks()
	if err := l.conn.Send(fmt.Appendf(nil, "set %s 0 0 %d\r\n%s\r\n", contract.ListKey, len(text), text)); err != nil {
		return err
	}
	answer, err := l.conn.Line()
	if err == nil && string(answer) != "STORED" {
		err = fmt.Errorf("memcached answers %.80q", answer)
	}
	if err != nil {
		return err
	}
	l.kept = text
	l.keptCAS, err = l.conn.CAS([]byte(contract.ListKey))
	return err
}

func (l *list) disconnect() {
	if l.conn != nil {
		l.conn.Close()
		l.conn, l.kept, l.keptCAS = nil, "", 0
	}
}

// serve answers clients of the discovery protocol on its port.
func (l *list) serve(ctx context.Context) {
	server := l.server()
	var failure lastFailure
	for ctx.Err() == nil {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.s.Discovery)
		if err == nil {
			err = server.Serve(ctx, listener)
		}
		if failure.isNew(err) && ctx.Err() == nil {
			l.s.std.Logf("discovery is not served: %s", failure)
		}
		_ = pace.Sleep(ctx, listPeriod)
	}
}

// server uses the members' TLS and logins. server looks at their files for each connection.
func (l *list) server() *discoveryServer {
	d := l.s.Dialer
	s := &discoveryServer{List: l.now.Load, Version: l.s.version}
	if d.TLSDir != "" {
		s.TLS = func() (*tls.Config, error) { return d.ServerTLS(l.s.verifiesClients()) }
	}
	if d.AuthFile != "" {
		s.Logins = d.Logins
	}
	return s
}
