package drainertest

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Proxy is a proxy before a server that drops a number of connections, each after some bytes in either
// direction.
type Proxy struct {
	listener net.Listener
	server   string
	mu       sync.Mutex
	r        *rand.Rand
	drops    int
	conns    map[net.Conn]bool
	all      sync.WaitGroup
}

// NewProxy starts a proxy that drops that many connections.
func NewProxy(t *testing.T, server string, seed uint64, drops int) *Proxy {
	t.Helper()
	p := ProxyAt(t, "127.0.0.1:0", server)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.r, p.drops = rand.New(rand.NewPCG(seed, 2)), drops
	return p
}

// ProxyAt starts a proxy that drops nothing until its end.
func ProxyAt(t *testing.T, address, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, server: server, conns: map[net.Conn]bool{}}
	p.all.Go(p.accept)
	t.Cleanup(p.End)
	return p
}

// End ends the proxy, with all its connections.
func (p *Proxy) End() {
	p.listener.Close()
	p.closeAll()
	p.all.Wait()
}

// Address is where to connect.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(in) })
	}
}

// serve passes bytes on until either side ends, or the allowed number of bytes has passed.
func (p *Proxy) serve(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer out.Close()
	most := p.open(in, out)
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			_, _ = io.CopyN(way[1], bufio.NewReaderSize(way[0], 1+int(most%5000)), most)
			in.Close()
			out.Close()
		})
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, in)
	delete(p.conns, out)
}

// open returns how many bytes may pass.
func (p *Proxy) open(conns ...net.Conn) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	if p.drops == 0 {
		return 1 << 60
	}
	p.drops--
	return p.r.Int64N(30000)
}

func (p *Proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}
