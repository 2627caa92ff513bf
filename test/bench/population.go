package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// population is a set of items, the same in each run.
type population struct {
	name  string
	items int
	// size returns the i-th value's size in bytes.
	size func(i int) int
	// metadata is set if one item in four has client flags, and one in two expires in days.
	metadata bool
}

func fixed(n int) func(int) int { return func(int) int { return n } }

// mixed draws value sizes from the generalised Pareto distribution that was
// fitted to Facebook's ETC pool (Atikoglu and others, "Workload Analysis of a
// Large-Scale Key-Value Store", SIGMETRICS 2012), cut at 100 kB. The mean is
// about 330 bytes.
func mixed(i int) int {
	const scale, shape, most = 214.476, 0.348238, 100_000
	u := rand.New(rand.NewPCG(uint64(i), 1)).Float64()
	return 1 + min(most, int(scale/shape*(math.Pow(1-u, -shape)-1)))
}

func (p population) String() string { return fmt.Sprintf("%s × %s", p.name, count(p.items)) }

// bytes is the size of all keys and values.
func (p population) bytes() int64 {
	var sum int64
	for i := range p.items {
		sum += int64(p.size(i)) + keyLength
	}
	return sum
}

const keyLength = int64(len("benchmark:key:00000000"))

func appendKey(dst []byte, i int) []byte { return fmt.Appendf(dst, "benchmark:key:%08d", i) }

// memory is memcached's -m, in MiB, that holds all items: slots are up to a fifth larger than items, and each
// class begins with a page of its own.
func (p population) memory() int {
	const header, slack = 60, 64
	return int((p.bytes()+int64(p.items)*header)*11/10>>20) + slack
}

// value is cut to each item's size. The bytes are random, so that no item can be compressed.
var value = func() []byte {
	b := make([]byte, 128<<10)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = 'a' + byte(r.IntN(26))
	}
	return b
}()

// nowhere is the owner of an item that is left out.
const nowhere = -1

// commands returns quiet adds of all items: a list for each connection to each server.
func (p population) commands(servers int, owner func(key []byte) int) [][][]byte {
	commands := make([][][]byte, servers)
	for i := range commands {
		commands[i] = make([][]byte, connections)
		for j := range commands[i] {
			commands[i][j] = make([]byte, 0, int(p.bytes()+int64(p.items)*40)/servers/connections*11/10)
		}
	}
	expire := strconv.FormatInt(time.Now().Add(72*time.Hour).Unix(), 10)
	var key []byte
	for i := range p.items {
		key = appendKey(key[:0], i)
		server := owner(key)
		if server == nowhere {
			continue
		}
		to := &commands[server][i%connections]
		n := p.size(i)
		*to = append(append(append(*to, "ms "...), key...), ' ')
		*to = append(strconv.AppendInt(*to, int64(n), 10), " ME q"...)
		if p.metadata && i%2 == 0 {
			*to = append(append(*to, " T"...), expire...)
		}
		if p.metadata && i%4 == 0 {
			*to = append(*to, " F305419896"...)
		}
		*to = append(append(append(*to, "\r\n"...), value[:n]...), "\r\n"...)
	}
	return commands
}
