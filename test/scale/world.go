package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	operator "example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/internal/harness"
)

// world has all that the phases use.
type world struct {
	options options
	out     io.Writer
	began   time.Time

	plane   *controlPlane
	kwok    *child
	current atomic.Pointer[manager]
	audit   *audit
	tracker *tracker
	client  client.Client
}

// newWorld starts everything but the manager. The caller calls close, also
// after an error.
func newWorld(ctx context.Context, o options, dir string, out io.Writer) (*world, error) {
	w := &world{options: o, out: out, began: time.Now()}
	var err error
	if w.plane, err = startControlPlane(ctx, filepath.Join(o.root, "bin", "k8s"), dir); err != nil {
		return w, err
	}
	w.audit = &audit{log: harness.AuditLog{Path: w.plane.auditLog()}, counts: counts{}}
	if w.client, err = client.New(w.plane.config(), client.Options{Scheme: operator.NewScheme()}); err != nil {
		return w, err
	}
	if err := w.createScenery(ctx); err != nil {
		return w, err
	}
	if w.kwok, err = startKwok(w.plane, o.kwok); err != nil {
		return w, err
	}
	return w, w.watch(ctx)
}

// watch starts the provisioner and the tracker.
func (w *world) watch(ctx context.Context) error {
	mgr, err := ctrl.NewManager(w.plane.config(), ctrl.Options{
		Scheme:  operator.NewScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	if err := (volumes{mgr.GetClient()}).setUp(mgr); err != nil {
		return err
	}
	if w.tracker, err = newTracker(ctx, mgr.GetCache()); err != nil {
		return err
	}
	go func() { _ = mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the benchmark's own caches don't sync")
	}
	return nil
}

// createScenery installs the CRD, the manager's role, nodes and a storage class.
func (w *world) createScenery(ctx context.Context) error {
	config := filepath.Join(w.options.root, "config")
	_, err := envtest.InstallCRDs(w.plane.config(), envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(config, "crd", "bases")}, ErrorIfPathMissing: true,
		MaxTime: 10 * time.Minute, // 10 s by default, which a busy machine exceeds
	})
	if err != nil {
		return fmt.Errorf("install the CRD: %w", err)
	}
	role, err := managerRole(filepath.Join(config, "rbac", "role.yaml"))
	if err != nil {
		return err
	}
	objects := []client.Object{role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: operatorUser}},
	}, class()}
	const nodes = 20
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelHostname: name},
		}})
	}
	for _, o := range objects {
		if err := w.client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

func managerRole(path string) (*rbacv1.ClusterRole, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{}
	return role, yaml.Unmarshal(text, role)
}

// manager returns the one that runs, or nil.
func (w *world) manager() *manager { return w.current.Load() }

// startManager starts the manager with further flags, in place of the one that runs.
func (w *world) startManager(ctx context.Context, flags ...string) error {
	w.stopManager()
	flags = slices.Concat(w.options.managerFlags, flags)
	m, err := startManager(w.plane, w.options.manager, flags...)
	if err != nil {
		return err
	}
	w.current.Store(m)
	return w.until(ctx, w.options.limit, "the manager serves", func() (string, bool) {
		_, err := fetch(ctx, "http://"+m.probes+"/readyz")
		return fmt.Sprint(err), err == nil
	})
}

func (w *world) stopManager() {
	if m := w.manager(); m != nil {
		m.stop()
	}
}

// ended returns an error if a program has ended by itself.
func (w *world) ended() error {
	err := errors.Join(w.plane.ended(), w.kwok.ended())
	if m := w.manager(); m != nil {
		err = errors.Join(err, m.ended())
	}
	return err
}

// close ends every program.
func (w *world) close() {
	w.stopManager()
	w.kwok.stop()
	w.plane.stop()
}

// until waits for a state, and prints a progress line every five seconds.
func (w *world) until(ctx context.Context, limit time.Duration, what string, is func() (string, bool)) error {
	said := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %s", limit))
	defer cancel()
	err := harness.Until(ctx, 100*time.Millisecond, what, func() error {
		state, ok := is()
		if ok {
			return nil
		}
		if err := w.ended(); err != nil {
			return harness.Never(err)
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			w.say("waiting until %s: %s", what, state)
		}
		return errors.New(state)
	})
	if m := w.manager(); err != nil && m != nil {
		return fmt.Errorf("%w\n%s", err, m.tail())
	}
	return err
}

// say prints a progress line.
func (w *world) say(format string, args ...any) {
	fmt.Fprintf(w.out, "%5.0f s  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}
