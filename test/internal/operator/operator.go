// Package operator runs the manager inside a test as cmd/manager runs it, with its
// writes recorded and, if a test wants it, failing.
package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
	testwait "example.com/memcached-operator/test/wait"
)

// These are the images of the objects under test.
const (
	MemcachedImage = "memcached:test"
	OperatorImage  = "memcached-operator:test"
)

// Installation of the operators under test.
const Installation = "operators/memcached-operator"

// Options of one operator.
type Options struct {
	Config *rest.Config
	// Namespaces are watched; none stands for all.
	Namespaces []string
	// Journal has its writes. Operators that follow each other share one.
	Journal  *Journal
	Progress controllers.ProgressReader
	// Rings asks routers which table they have acknowledged.
	Rings controllers.RingReader
	// Certificates asks members and routers for their certificates; nil asks none.
	Certificates controllers.CertificateReader
	// Steps asks members that are out of the ring whether they have started empty; nil asks none.
	Steps controllers.StepReader
	// Memory asks members for their memory; nil asks none.
	Memory controllers.MemoryReader
	// Images are those of the operator's version; MemcachedImage and OperatorImage by default.
	Images Images
	// RolloutsAtOnce is how many clusters an upgrade rolls out at once.
	RolloutsAtOnce int
	// Installation is the operator's; the constant Installation by default, which all operators of a test
	// share.
	Installation string
	Log          logr.Logger
	// Clock is the operator's; nil for the machine's.
	Clock clock.PassiveClock
}

// Images are those of a version of the operator.
type Images struct{ Memcached, Operator string }

// Operator is an operator that runs.
type Operator struct {
	// Reconciler is the operator's, for a reconcile without an event.
	Reconciler *controllers.MemcachedReconciler
	// Drains is that of StatefulSetDrains.
	Drains *controllers.StatefulSetDrainReconciler
	// Metrics are this operator's alone.
	Metrics prometheus.Gatherer

	cancel context.CancelFunc
	ended  chan struct{}
	err    error // once ended
}

func (o *Options) clock() clock.PassiveClock {
	if o.Clock == nil {
		return clock.RealClock{}
	}
	return o.Clock
}

// Start runs an operator until Stop, or until a fault kills it.
func Start(o Options) (*Operator, error) {
	config := rest.CopyConfig(o.Config)
	config.UserAgent = cachev1alpha1.ManagedBy
	life := &lifetime{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &transport{next: next, journal: o.Journal, life: life}
	})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  controllers.NewScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   controllers.CacheOptions(o.Namespaces...),
		Logger:  controllers.Logger(o.Log),
	})
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	registry := prometheus.NewRegistry()
	metrics, err := controllers.NewMetrics(registry, mgr.GetClient())
	if err != nil {
		return nil, fmt.Errorf("register the metrics: %w", err)
	}
	unlabelled, err := controllers.WatchUnlabelled(mgr, o.Namespaces...)
	if err != nil {
		return nil, fmt.Errorf("watch claims without a label: %w", err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up the clients: %w", err)
	}
	reconciler := &controllers.MemcachedReconciler{
		Client:       mgr.GetClient(),
		Live:         mgr.GetAPIReader(),
		Namespaces:   o.Namespaces,
		Unlabelled:   unlabelled,
		Events:       mgr.GetEventRecorder(cachev1alpha1.ManagedBy),
		Progress:     o.Progress,
		Rings:        o.Rings,
		Certificates: o.Certificates,
		Steps:        o.Steps,
		Nodes:        clients.CoreV1().Nodes(),
		Memory:       o.Memory,
		Metrics:      metrics,
		Options: controllers.Options{
			MemcachedImage: cmp.Or(o.Images.Memcached, MemcachedImage),
			OperatorImage:  cmp.Or(o.Images.Operator, OperatorImage),
		},
		RolloutsAtOnce: o.RolloutsAtOnce,
		Installation:   cmp.Or(o.Installation, Installation),
		Clock:          o.clock(),
	}
	err = reconciler.SetupWithManager(mgr, controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: ptr.To(true)})
	if err != nil {
		return nil, fmt.Errorf("set up the controller: %w", err)
	}
	drains, err := setUpDrains(mgr, clients, reconciler)
	if err != nil {
		return nil, err
	}
	return run(mgr, reconciler, drains, registry, life)
}

// setUpDrains adds the controller of StatefulSetDrains.
func setUpDrains(mgr ctrl.Manager, clients kubernetes.Interface, beside *controllers.MemcachedReconciler) (*controllers.StatefulSetDrainReconciler, error) {
	drains := &controllers.StatefulSetDrainReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clients: clients, Namespaces: beside.Namespaces, Unlabelled: beside.Unlabelled,
		Events: mgr.GetEventRecorder(cachev1alpha1.ManagedBy), Metrics: beside.Metrics, Clock: beside.Clock, Installation: beside.Installation,
	}
	if err := drains.SetupWithManager(mgr, controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: ptr.To(true)}); err != nil {
		return nil, fmt.Errorf("set up the controller of StatefulSetDrains: %w", err)
	}
	return drains, nil
}

func run(mgr ctrl.Manager, reconciler *controllers.MemcachedReconciler, drains *controllers.StatefulSetDrainReconciler, metrics prometheus.Gatherer, life *lifetime) (*Operator, error) {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Operator{Reconciler: reconciler, Drains: drains, Metrics: metrics, cancel: cancel, ended: make(chan struct{})}
	life.onDeath = cancel
	go func() {
		defer close(o.ended)
		o.err = mgr.Start(ctx)
	}()
	if err := o.readable(ctx); err != nil {
		return nil, errors.Join(err, o.Stop())
	}
	return o, nil
}

// readable waits until the controllers have their caches: each begins to read in its own time.
func (o *Operator) readable(ctx context.Context) error {
	const interval = 10 * time.Millisecond
	limited, cancel := context.WithDeadline(ctx, testwait.Deadline())
	defer cancel()
	err := wait.PollUntilContextCancel(limited, interval, true, func(ctx context.Context) (bool, error) {
		for _, list := range []client.ObjectList{
			&cachev1alpha1.MemcachedList{}, &cachev1alpha1.StatefulSetDrainList{}, &corev1.PersistentVolumeClaimList{}, &batchv1.JobList{}, &corev1.PodList{},
			&corev1.ServiceList{}, &corev1.ConfigMapList{}, &appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &discoveryv1.EndpointSliceList{},
			&networkingv1.NetworkPolicyList{}, &policyv1.PodDisruptionBudgetList{},
		} {
			if err := o.Reconciler.List(ctx, list); err != nil {
				return false, nil //nolint:nilerr // not yet
			}
		}
		return true, nil
	})
	// A fault may have killed the operator by now, which is no error.
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the operator's caches did not come up: %w", err)
	}
	return nil
}

// Stop ends the operator as SIGTERM would, and waits for its end. Stop may be called again, or after a fault
// has killed the operator.
func (o *Operator) Stop() error {
	o.cancel()
	<-o.ended
	return o.err
}

// Ended is closed when the operator has ended.
func (o *Operator) Ended() <-chan struct{} { return o.ended }
