// Command cluster brings up, shows and removes the Kubernetes cluster that the tests and the demo of this
// repository run on. `make help` lists the targets that call it.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}
