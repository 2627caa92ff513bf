// Command drainer supervises memcached, drains the volumes of departed members, and
// moves items between running ones. See package cli.
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
