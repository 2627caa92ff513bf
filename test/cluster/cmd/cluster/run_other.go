//go:build !linux

package main

import (
	"fmt"
	"runtime"
)

func run([]string) error {
	return fmt.Errorf("this is %s, and the cluster needs Linux; use any cluster in KUBECONFIG instead: make demo CLUSTER=existing", runtime.GOOS)
}
