// Command drainer supervises memcached, drains the volumes of departed members, and
// moves items between running ones. See package cli.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"slices"

	"example.com/memcached-operator/drainer/cli"
	"example.com/memcached-operator/drainer/commandline"
)

// moveMemory is how many bytes the Go runtime may use while items are moved, whatever their number. The
// buffers of a move are fixed and take at most two thirds of moveMemory; the rest is for garbage. Drainers
// and movers run beside the members, on the members' nodes.
const moveMemory = 48 << 20

func main() {
	if moves := []string{"drain", "move"}; len(os.Args) > 1 && slices.Contains(moves, os.Args[1]) && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(moveMemory)
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], commandline.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
