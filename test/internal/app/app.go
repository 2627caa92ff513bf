// Package app is an application that uses a memcached cluster. The application finds the server of a key by
// its client's ring, and asks that server only. Items are stored by a client library, so that the drainer's
// protocol code does not check itself.
package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"golang.org/x/sync/errgroup"

	meta "example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
)

// workers is how many fill or read at the same time.
const workers = 8

// patience bounds one request. patience is long, since the machine may be busy.
const patience = 10 * time.Minute

// App is an application with a list of servers.
type App struct {
	// Dialer makes the connections.
	Dialer meta.Dialer
	// Slack is by how many more seconds a TTL may differ. Through a router, Check doesn't see the members'
	// clocks, which may be some seconds behind.
	Slack int64

	owner routing.Owner
	// addresses has the servers' addresses, in the order of the ring.
	addresses []string
}

// New returns an application whose client distributes over servers
// ("HOST:PORT", in ring order) and dials dial(server).
func New(client string, servers []string, dial func(server string) string) (*App, error) {
	a := &App{}
	ring := make([]routing.Server, len(servers))
	for i, s := range servers {
		server, err := routing.ParseServer(s)
		if err != nil {
			return nil, err
		}
		ring[i] = server
		a.addresses = append(a.addresses, dial(s))
	}
	var err error
	a.owner, err = routing.New(client, ring)
	return a, err
}

// PickServer makes the App a gomemcache selector.
func (a *App) PickServer(key string) (net.Addr, error) {
	return net.ResolveTCPAddr("tcp", a.addresses[a.owner.Owner([]byte(key))])
}

// Each makes the App a gomemcache selector.
func (a *App) Each(f func(net.Addr) error) error {
	for _, address := range a.addresses {
		resolved, err := net.ResolveTCPAddr("tcp", address)
		if err == nil {
			err = f(resolved)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Fill stores the objects, and sets Expires of each.
func (a *App) Fill(ctx context.Context, objects []Object) error {
	client := memcache.NewFromSelector(a)
	client.DialContext = a.Dialer.DialContext
	client.MaxIdleConns, client.Timeout = workers, patience
	defer func() { _ = client.Close() }()
	return parallel(ctx, len(objects), func(i int) error {
		o := &objects[i]
		o.Expires = 0
		if o.TTL > 0 {
			o.Expires = time.Now().Add(o.TTL).Unix()
		}
		err := client.Set(&memcache.Item{
			Key: o.Key, Value: o.Value, Flags: o.Flags, Expiration: int32(o.Expires),
		})
		if err != nil {
			return fmt.Errorf("store %s: %w", o.Key, err)
		}
		return nil
	})
}

// Report has the application's results for its objects.
type Report struct {
	Objects, Found, Missing, Wrong int64
	Bytes                          int64
	// Examples are objects that are missing or wrong, ten at most.
	Examples []string
}

// Check reads every object from its owner, and compares bytes, flags and TTL. Check compares TTLs by the
// server's clock, which makes items expire: memcached's clock may be three seconds behind.
func (a *App) Check(ctx context.Context, objects []Object) (Report, error) {
	var (
		report Report
		lock   sync.Mutex
	)
	pool := newPool(ctx, a.Dialer)
	defer pool.close()
	err := parallel(ctx, len(objects), func(i int) error {
		o := &objects[i]
		value, now, err := pool.get(a.addresses[a.owner.Owner([]byte(o.Key))], o.Key)
		if err != nil {
			return fmt.Errorf("read %s: %w", o.Key, err)
		}
		difference := compare(o, value, now, a.Slack)
		lock.Lock()
		defer lock.Unlock()
		switch {
		case value == nil:
			report.Missing++
		case difference != "":
			report.Wrong++
		default:
			report.Found++
			report.Bytes += int64(len(value.Data))
		}
		if difference != "" && len(report.Examples) < 10 {
			report.Examples = append(report.Examples, o.Key+": "+difference)
		}
		return nil
	})
	report.Objects = int64(len(objects))
	return report, err
}

// compare says how a value differs from the object, or "". now is the server's clock in Unix seconds. more is
// by how many more seconds a TTL may differ.
func compare(o *Object, value *meta.Value, now, more int64) string {
	// memcached's clock ticks once a second, stands still while its process is not scheduled, and goes on from a file
	// after a restart: on a busy machine that was three seconds. Lifetimes in tests are an hour and more.
	slack := 30 + more
	switch {
	case value == nil:
		return "missing"
	case !bytes.Equal(o.Value, value.Data):
		return fmt.Sprintf("%d bytes differ from the %d that were stored", len(value.Data), len(o.Value))
	case uint64(o.Flags) != value.Flags:
		return fmt.Sprintf("flags %d, not %d", value.Flags, o.Flags)
	case o.Expires == 0 && value.TTL != -1:
		return fmt.Sprintf("expires in %d seconds, not never", value.TTL)
	case o.Expires != 0 && max(now+value.TTL-o.Expires, o.Expires-now-value.TTL) > slack:
		return fmt.Sprintf("expires in %d seconds, not %d", value.TTL, o.Expires-now)
	}
	return ""
}

// parallel calls f for 0 … n-1 from several workers, up to the first error.
func parallel(ctx context.Context, n int, f func(i int) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range workers {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := errors.Join(ctx.Err(), f(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// pool keeps idle connections by address.
type pool struct {
	ctx  context.Context
	dial meta.Dialer
	lock sync.Mutex
	idle map[string][]*connection
}

// connection knows how far the server's clock is ahead of this process's.
type connection struct {
	*meta.Conn
	ahead time.Duration
}

func newPool(ctx context.Context, dial meta.Dialer) *pool {
	return &pool{ctx: ctx, dial: dial, idle: map[string][]*connection{}}
}

// get returns the value of a key, nil if there is none, and the time by the server's
// clock.
func (p *pool) get(address, key string) (*meta.Value, int64, error) {
	conn, err := p.take(address)
	if err != nil {
		return nil, 0, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, 0, err
	}
	value, err := conn.Get([]byte(key))
	if err != nil {
		_ = conn.Close()
		return nil, 0, err
	}
	now := time.Now().Add(conn.ahead)
	p.lock.Lock()
	defer p.lock.Unlock()
	p.idle[address] = append(p.idle[address], conn)
	return value, now.Unix(), nil
}

func (p *pool) take(address string) (*connection, error) {
	p.lock.Lock()
	if idle := p.idle[address]; len(idle) > 0 {
		defer p.lock.Unlock()
		p.idle[address] = idle[:len(idle)-1]
		return idle[len(idle)-1], nil
	}
	p.lock.Unlock()
	conn, err := p.dial.Dial(p.ctx, address)
	if err != nil {
		return nil, err
	}
	stats, err := conn.Stats("")
	if err != nil {
		return nil, err
	}
	clock, err := strconv.ParseInt(stats["time"], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("server %s does not tell its time: %w", address, err)
	}
	return &connection{conn, time.Until(time.Unix(clock, 0).Add(time.Second / 2))}, nil
}

func (p *pool) close() {
	for _, conns := range p.idle {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}
