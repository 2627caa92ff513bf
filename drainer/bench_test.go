package drainer

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/warmfile"
)

const benchItems = 1000000

// filledVolume is the volume of a memcached that saved benchItems items.
func filledVolume(b *testing.B, size int) string {
	b.Helper()
	dir := b.TempDir()
	m := memcachedtest.Start(b, "-m", fmt.Sprint(400+benchItems*(size+120)/1000000), "-e", filepath.Join(dir, contract.WarmFile))
	fill(b, []string{m.Address()}, fillCommands(b, []string{m.Address()}, size))
	m.Save()
	return dir
}

// fillCommands are quiet adds of all items, by server, ready to be sent over
// as many connections to each as the drainer uses.
func fillCommands(b *testing.B, servers []string, size int) [][][]byte {
	b.Helper()
	var list []routing.Server
	for _, a := range servers {
		s, err := routing.ParseServer(a)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, s)
	}
	owner, err := routing.New("memcached-proxy", list)
	if err != nil {
		b.Fatal(err)
	}
	commands := make([][][]byte, len(servers))
	for i := range commands {
		commands[i] = make([][]byte, 2)
	}
	value := make([]byte, size)
	for i := range benchItems {
		key := fmt.Appendf(nil, "benchmark:key:%08d", i)
		to := &commands[owner.Owner(key)][i%2]
		*to = fmt.Appendf(*to, "ms %s %d ME q\r\n%s\r\n", key, size, value)
	}
	return commands
}

// fill sends the commands as fast as the servers take them.
func fill(b *testing.B, servers []string, commands [][][]byte) {
	b.Helper()
	var wg sync.WaitGroup
	for i, lists := range commands {
		for _, list := range lists {
			wg.Go(func() {
				conn, err := net.Dial("tcp", servers[i])
				if err != nil {
					b.Error(err)
					return
				}
				defer conn.Close()
				for len(list) > 0 {
					n := min(len(list), largeBatch)
					if _, err := conn.Write(list[:n]); err != nil {
						b.Error(err)
						return
					}
					list = list[n:]
				}
				_, _ = conn.Write([]byte("mn\r\n"))
				if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "MN\r\n" {
					b.Errorf("%q, %v", line, err)
				}
			})
		}
	}
	wg.Wait()
}

// BenchmarkReader reads a file of a million items from a warm page cache.
func BenchmarkReader(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			dir := filledVolume(b, size)
			for b.Loop() {
				r, err := warmfile.Open(dir, warmfile.Options{})
				if err != nil {
					b.Fatal(err)
				}
				if n, err := r.Count(b.Context()); n != benchItems || err != nil {
					b.Fatalf("%d items, %v", n, err)
				}
				r.Close()
			}
			b.ReportMetric(benchItems*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mitems/s")
		})
	}
}

// BenchmarkMigrate compares a drain with the fastest way to fill the same
// servers with the same items: commands that lie ready. Rounds alternate.
func BenchmarkMigrate(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		for _, n := range []int{1, 3} {
			b.Run(fmt.Sprintf("%dB,%dsurvivors", size, n), func(b *testing.B) { benchmarkMigrate(b, size, n) })
		}
	}
}

func benchmarkMigrate(b *testing.B, size, n int) {
	dir := filledVolume(b, size)
	var filling, migrating time.Duration
	for b.Loop() {
		b.StopTimer()
		servers, stop := freshServers(b, n, size)
		commands := fillCommands(b, servers, size)
		start := time.Now()
		fill(b, servers, commands)
		filling += time.Since(start)
		stop()
		servers, stop = freshServers(b, n, size)
		b.StartTimer()
		start = time.Now()
		drainTo(b, dir, servers)
		migrating += time.Since(start)
		b.StopTimer()
		stop()
		b.StartTimer()
	}
	items := benchItems * float64(b.N) / 1e6
	b.ReportMetric(items/filling.Seconds(), "fill-Mitems/s")
	b.ReportMetric(items/migrating.Seconds(), "migrate-Mitems/s")
	b.ReportMetric(filling.Seconds()/migrating.Seconds(), "ratio")
}

func freshServers(b *testing.B, n, size int) (addresses []string, stop func()) {
	b.Helper()
	var servers []*memcachedtest.Server
	for range n {
		s := memcachedtest.Start(b, "-m", fmt.Sprint(400+benchItems*(size+120)/1000000))
		servers = append(servers, s)
		addresses = append(addresses, s.Address())
	}
	return addresses, func() {
		for _, s := range servers {
			s.Kill()
		}
	}
}

func drainTo(b *testing.B, dir string, addresses []string) {
	b.Helper()
	source, err := warmfile.Open(dir, warmfile.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer source.Close()
	var list []routing.Server
	for _, a := range addresses {
		s, err := routing.ParseServer(a)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, s)
	}
	owner, err := routing.New("memcached-proxy", list)
	if err != nil {
		b.Fatal(err)
	}
	m := Migration{Source: source, Owner: owner, Servers: list, UnreachableTimeout: time.Minute, Log: b.Output()}
	if r := m.Run(b.Context()); r.AddsUp("") != nil || r.Added != benchItems {
		b.Fatalf("receipt %+v", r)
	}
}
