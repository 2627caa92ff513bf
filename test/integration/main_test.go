// Package integration proves the controllers against a real API server and
// controller manager; package player plays the kubelet.
package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/internal/controlplane"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/invariants"
	"example.com/memcached-operator/test/summary"
	"example.com/memcached-operator/test/tier"
)

// All tests share one control plane and one player. Each test has a namespace and an operator of its own.
var (
	plane *controlplane.ControlPlane
	kubes *player.Player
	// admin is an administrator's client without a cache.
	admin client.WithWatch
	// recorder has every change of every object, for the invariants.
	recorder *invariants.Recorder
	// checkedSteps is how many changes were checked.
	checkedSteps atomic.Int64
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		// The tests wait more than they work.
		_ = flag.Set("test.parallel", "10")
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if err := controlplane.Missing(); err != nil && !tier.Required() {
		fmt.Println("integration: skipped; make test-integration builds what it needs, and runs it:", err)
		return 0
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	if err := setUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err, plane.Stop())
		return 1
	}
	fmt.Printf("control plane up in %.1f s\n", time.Since(began).Seconds())
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" {
		if err := unusedRights(); err != nil {
			fmt.Fprintln(os.Stderr, "integration:", err)
			code = 1
		}
	}
	err := summary.Add("integration: %d invariants asked of each of %d changes of objects", len(invariants.All), checkedSteps.Load())
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	cancel()
	if err := plane.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "integration: stop the control plane:", err)
		code = 1
	}
	return code
}

func setUp(ctx context.Context) error {
	var err error
	if plane, err = controlplane.Start(); err != nil {
		return err
	}
	if admin, err = client.NewWithWatch(plane.Config, client.Options{Scheme: controllers.NewScheme()}); err != nil {
		return err
	}
	if recorder, err = invariants.Record(ctx, admin); err != nil {
		return err
	}
	if err = grantOperator(ctx); err != nil {
		return err
	}
	if err = bindVolumePolicy(ctx); err != nil {
		return err
	}
	kubes, err = player.Start(ctx, plane.Config)
	return err
}
