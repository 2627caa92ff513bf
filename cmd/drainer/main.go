// Command drainer supervises memcached, and moves what a leaving one held to
// the servers that stay. See package drainer.
package main

import (
	"context"
	"os"

	"example.com/memcached-operator/drainer"
)

func main() {
	os.Exit(drainer.Main(context.Background(), os.Args[1:], drainer.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
