// Command kubectl-mc is a plugin of kubectl: kubectl mc.
package main

import (
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"example.com/memcached-operator/cmd/kubectl-mc/internal/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}
