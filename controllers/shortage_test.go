package controllers

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/drainer/cli"
	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// Real members with a file of items are full, and some leave. The real mover moves their items, and the rest
// has to be that of the forecast, within a twentieth.
func TestAForecastOfAShortageIsWhatMembersEvict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		to           int32
		items, sizes []int // as many items of each size, in bytes
	}{
		"of one size":       {1, []int{36_000}, []int{4000}},
		"of two sizes":      {1, []int{10_000, 20_000}, []int{4000, 1500}},
		"of one size, few":  {2, []int{6_000}, []int{4000}},
		"of many sizes":     {2, []int{20_000, 20_000, 6_000, 2_000}, []int{300, 700, 4000, 12_000}},
		"larger than chunk": {1, []int{6_000, 60}, []int{4000, 700_000}},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "of one size" && name != "of many sizes" {
				tier.Second(t, "TestAForecastOfAShortageIsWhatMembersEvict")
			}
			m := apitest.MakeMemcached("cache").Namespace("shop").Size(3).Storage("1Gi").Defaulted().Obj()
			m.Spec.Size = &test.to
			l := &live{t: t, m: m}
			for range 3 {
				l.start()
			}
			l.fill(test.items, test.sizes)
			p := &preview{before: m, after: m, holds: l.hold()}
			p.flows(shrinks(t, m, 3))
			all := func(holds map[string]Holds) (sum Holds) {
				for _, h := range holds {
					sum.Add(Holds{Items: h.Items, Bytes: h.Bytes})
				}
				return sum
			}
			before := all(p.holds)
			for i := test.to; i < 3; i++ {
				l.move(i, test.to)
			}
			after := l.hold()
			for i := test.to; i < 3; i++ {
				delete(after, build.PodName("cache", i))
			}
			left := all(after)
			want := Holds{Items: before.Items - p.Evicted.Items, Bytes: before.Bytes - p.Evicted.Bytes}
			t.Logf("%d items, %d bytes; %d, %d planned to be left, and %d, %d are", before.Items, before.Bytes, want.Items, want.Bytes, left.Items, left.Bytes)
			if off(want.Items, left.Items) > 0.05 || off(want.Bytes, left.Bytes) > 0.05 {
				t.Errorf("the forecast is %+v", p.Evicted)
			}
		})
	}
}

// live are real members.
type live struct {
	t         *testing.T
	m         *cachev1alpha1.Memcached
	addresses []string
}

// start starts a member: memcached with a file of items.
func (l *live) start() {
	l.t.Helper()
	binary, err := exec.LookPath(cmp.Or(os.Getenv("MEMCACHED"), "memcached"))
	tier.Needs(l.t, "memcached", err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(binary, "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", "0", "-m", "64", "-e", filepath.Join(l.t.TempDir(), "items"))
	if err := tied.Start(cmd); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	l.addresses = append(l.addresses, address)
	wait.For(l.t, "memcached", func() error { return l.ask(len(l.addresses)-1, func(*memcache.Conn) error { return nil }) })
}

func (l *live) ask(i int, question func(*memcache.Conn) error) error {
	conn, err := memcache.Dial(l.t.Context(), l.addresses[i])
	if err != nil {
		return err
	}
	defer conn.Close()
	return question(conn)
}

// fill stores items where the clients of three members look for them.
func (l *live) fill(items, sizes []int) {
	l.t.Helper()
	where := lists(l.t, l.m, 3)
	requests := make([]bytes.Buffer, 3)
	for n := 0; n < 1000; n++ { // all sizes side by side
		for k, size := range sizes {
			for i := n * items[k] / 1000; i < (n+1)*items[k]/1000; i++ {
				key := fmt.Sprintf("%d:%d", size, i)
				to := &requests[where.Owner.Owner([]byte(key))]
				fmt.Fprintf(to, "set %s 0 0 %d noreply\r\n%s\r\n", key, size, strings.Repeat("x", size))
			}
		}
	}
	for i := range requests {
		err := l.ask(i, func(c *memcache.Conn) error {
			if err := c.Send(requests[i].Bytes()); err != nil {
				return err
			}
			return c.Ping()
		})
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// hold asks the members as the operator does.
func (l *live) hold() map[string]Holds {
	l.t.Helper()
	holds := map[string]Holds{}
	for i, address := range l.addresses {
		h, err := MemoryFromStats(l.t.Context(), address)
		if err != nil || len(h.Classes) == 0 {
			l.t.Fatalf("member %d holds %+v: %v", i, h, err)
		}
		holds[build.PodName("cache", int32(i))] = h
	}
	return holds
}

// move moves the items of a member that leaves.
func (l *live) move(from, to int32) {
	l.t.Helper()
	ring := build.RingOf(l.m, to)
	args := contract.Move{Source: l.addresses[from], Transfer: contract.Transfer{
		SourceID: "the-claim", Client: ring.Client, UnreachableTimeout: wait.Long, Receipt: filepath.Join(l.t.TempDir(), "receipt"),
	}}
	for i, s := range build.RingServers(l.m, ring) {
		args.Servers = append(args.Servers, fmt.Sprintf("%s:%d=%s", s.Host, s.Port, l.addresses[i]))
	}
	var said bytes.Buffer
	if code := cli.Main(l.t.Context(), args.Args(), commandline.IO{In: strings.NewReader(""), Out: &said, Err: &said}); code != contract.ExitOK {
		l.t.Fatalf("the mover ends with %d: %s", code, &said)
	}
}
