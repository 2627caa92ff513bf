// Command drainer supervises memcached, and moves what a leaving one held to
// the servers that stay. See package cli.
package main

import (
	"context"
	"os"

	"example.com/memcached-operator/drainer/args"
	"example.com/memcached-operator/drainer/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], args.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
