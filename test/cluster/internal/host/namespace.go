package host

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// NamespaceFlags are the namespaces that a node has for itself: network, so
// that kube-proxy's and the kubelet's iptables rules meet nobody else's, and
// mounts, so that the kubelet's and containerd's fixed paths do neither.
const NamespaceFlags = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS

// Bind shows the directory Source at the path Target, inside the namespace.
type Bind struct {
	Source, Target string
}

// Hold keeps the namespaces that this process was started in open until the
// context ends. It puts the binds in place first, and then makes the file
// ready. Everything inside is gone as soon as the last process in it has
// ended, however it ended.
func Hold(ctx context.Context, binds []Bind, ready string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// What the machine mounts later is seen inside, but not the reverse; and
	// containers may get what is mounted inside later.
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
