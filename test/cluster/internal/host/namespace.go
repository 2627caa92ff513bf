package host

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// NamespaceFlags are the namespaces that a node has for itself: network, so that kube-proxy's and the kubelet's
// iptables rules don't meet those of other programs, and mounts, for the fixed paths of the kubelet and
// containerd.
const NamespaceFlags = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS

// Bind mounts the directory Source at the path Target, inside the namespace.
type Bind struct {
	Source, Target string
}

// Hold keeps the namespaces of this process open until the context ends. Hold first mounts the binds, and
// then makes the file ready. When the last process in the namespaces has ended, in any way, the mounts and
// devices inside are gone.
func Hold(ctx context.Context, binds []Bind, ready string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Later mounts of the machine appear inside, but not the reverse. Containers may get later mounts from
	// inside.
	for _, propagation := range []uintptr{syscall.MS_SLAVE, syscall.MS_SHARED} {
		if err := syscall.Mount("none", "/", "", syscall.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("mount propagation: %w", err)
		}
	}
	for _, bind := range binds {
		if err := syscall.Mount(bind.Source, bind.Target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s to %s: %w", bind.Source, bind.Target, err)
		}
	}
	if err := os.WriteFile(ready, nil, 0o644); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
