package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/internal/harness"
)

// These describe the sample with routers.
const (
	routedSample  = "config/samples/cache_v1alpha1_memcached_routed.yaml"
	routedCluster = "routed"
)

// runRouted shows a scaling that an application can't notice: the application has one address, and uses the
// cache while this shrinks and grows again.
func (d *demo) runRouted(ctx context.Context) error {
	var err error
	if d.config, err = kubeconfig(); err != nil {
		return err
	}
	objects, left, err := d.objects(ctx)
	if err != nil {
		return err
	}
	if d.cluster = routedCluster; d.sample == persistentSample {
		d.sample = routedSample
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	if err := d.show(ctx, "rollout", "status", "deployment", routedCluster+"-router", "--timeout=120s"); err != nil {
		return err
	}
	address, err := d.routers(ctx)
	if err != nil {
		return err
	}
	all, err := app.New(client, []string{address}, func(server string) string { return server })
	if err != nil {
		return err
	}
	all.Slack = 10
	d.say("Filling %d objects through the routers (%d over the item limit are left out)", len(objects), left)
	if err := all.Fill(ctx, objects); err != nil {
		return err
	}
	d.say("An application goes on using the cache through its one address")
	stop := app.StartSteady(memcache.Dialer{}, address)
	var checks [2]app.Report
	for i, size := range []int{after, before} {
		if err := d.scaleRouted(ctx, size); err != nil {
			stop()
			return err
		}
		if checks[i], err = all.Check(ctx, objects); err != nil {
			stop()
			return err
		}
	}
	return d.finishRouted(checks, stop())
}

// routers returns an address of the routers, through the API server's port forwarding.
func (d *demo) routers(ctx context.Context) (address string, err error) {
	names, err := d.command(ctx, "get", "pod", "-l", "app.kubernetes.io/instance="+routedCluster+",app.kubernetes.io/component=router",
		"-o", "jsonpath={.items[*].metadata.name}").Output()
	if err != nil {
		return "", err
	}
	pods := strings.Fields(string(names))
	if len(pods) == 0 {
		return "", errors.New("there is no router")
	}
	return deployed.ForwardPods(ctx, d.config, d.namespace, pods, port)
}

// scaleRouted scales, and waits until the cluster is as wanted.
func (d *demo) scaleRouted(ctx context.Context, size int) error {
	began := time.Now()
	if err := d.show(ctx, "scale", "mc", routedCluster, fmt.Sprintf("--replicas=%d", size)); err != nil {
		return err
	}
	err := harness.Until(ctx, time.Second, "the cluster is as wanted", func() error {
		var mc cachev1alpha1.Memcached
		text, err := d.command(ctx, "get", "mc", routedCluster, "-o", "json").Output()
		if err == nil {
			err = json.Unmarshal(text, &mc)
		}
		if err != nil {
			return harness.Never(err)
		}
		st := &mc.Status
		if st.ObservedGeneration == mc.Generation && st.Phase == cachev1alpha1.PhaseRunning && meta.IsStatusConditionTrue(st.Conditions, cachev1alpha1.ConditionReady) {
			return nil
		}
		return fmt.Errorf("the cluster is %s\n%s", st.Phase, text)
	})
	if err != nil {
		return err
	}
	d.say("%d members, after %.1f s", size, time.Since(began).Seconds())
	return d.show(ctx, "get", "mc", routedCluster)
}

func (d *demo) finishRouted(checks [2]app.Report, saw app.Steady) error {
	if err := d.list([]line{
		{"objects", checks[0].Objects},
		{"found after 3 → 2", checks[0].Found},
		{"found after 2 → 3", checks[1].Found},
		{"requests of the application meanwhile", saw.Requests},
		{"misses of keys that exist", saw.Misses},
		{"old values", saw.Old},
		{"deletes undone", saw.Undone},
		{"errors", saw.Errors},
		{"slowest request, ms", saw.Slowest.Milliseconds()},
	}); err != nil {
		return err
	}
	examples := saw.Examples
	for _, r := range checks {
		if r.Found != r.Objects || r.Objects == 0 {
			return errors.New("not every object is there:\n" + strings.Join(r.Examples, "\n"))
		}
	}
	if saw.Wrong() > 0 || saw.Requests == 0 {
		return errors.New("the application has noticed:\n" + strings.Join(examples, "\n"))
	}
	fmt.Fprintf(d.out, "\nThe application has noticed nothing. The cluster stays up; try\n  kubectl -n %s scale mc %s --replicas=1\n", d.namespace, routedCluster)
	return nil
}
