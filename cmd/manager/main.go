// Command manager runs the controllers.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/version"
)

func main() {
	if err := dispatch(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

const usageText = `manager runs the operator's controllers.

  manager [FLAGS]
          reconcile until SIGTERM
  manager uninstall [FLAGS]
          remove the operator from the cluster, with all its finalizers
  manager check [FLAGS]
          tell whether an operator is installed and ready
  manager --version
          print the version, the commit, and the Go release that built it

Flags of manager; those of the others: manager COMMAND --help. The garbage collector
keeps the memory below 90 % of --memory-limit, unless the environment sets GOMEMLIMIT.

`

func dispatch(args []string) error {
	if len(args) > 0 && args[0] == "uninstall" {
		return runUninstall(args[1:], os.Stdout)
	}
	if len(args) > 0 && args[0] == "check" {
		return runCheck(args[1:], os.Stdout)
	}
	var f flags
	f.register(flag.CommandLine)
	flag.CommandLine.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usageText)
		flag.CommandLine.PrintDefaults()
	}
	if err := flag.CommandLine.Parse(args); err != nil {
		return err // not reached: the set exits
	}
	if f.version {
		fmt.Println("manager", version.String())
		return nil
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see manager --help", flag.Arg(0))
	}
	if err := f.boundMemory(); err != nil {
		return err
	}
	logger, err := f.logger()
	if err != nil {
		return err
	}
	log := controllers.Logger(zapr.NewLogger(logger))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	err = run(ctrl.SetupSignalHandler(), &f)
	_ = logger.Sync()
	return err
}

type flags struct {
	metricsAddr, probeAddr         string
	pprofAddr                      string
	syncPeriod                     time.Duration
	metricsSecure, leaderElect     bool
	metricsCertPath                string
	metricsCertName, metricsKey    string
	memoryLimit                    string
	version                        bool
	namespaces                     string
	concurrency, rolloutsAtOnce    int
	qps                            float64
	burst                          int
	memcachedImage, operatorImage  string
	assignedUsers                  string
	logFormat, logLevel            string
	leaderElectionNS               string
	leaseDuration, renewDeadline   time.Duration
	leaderRetryPeriod, gracePeriod time.Duration
}

func (f *flags) register(fs *flag.FlagSet) {
	fs.StringVar(&f.metricsAddr, "metrics-bind-address", ":8443", "Address of the metrics endpoint; 0 switches it off.")
	fs.BoolVar(&f.metricsSecure, "metrics-secure", true, "Serve metrics by HTTPS to callers that the API server authenticates and authorizes.")
	fs.StringVar(&f.metricsCertPath, "metrics-cert-path", "", "Folder with the certificate that metrics are served with, read again when it changes; by default the manager signs one itself.")
	fs.StringVar(&f.metricsCertName, "metrics-cert-name", "tls.crt", "File of the certificate in --metrics-cert-path.")
	fs.StringVar(&f.metricsKey, "metrics-cert-key", "tls.key", "File of its key in --metrics-cert-path.")
	fs.StringVar(&f.probeAddr, "health-probe-bind-address", ":8081", "Address of the health probes.")
	fs.StringVar(&f.pprofAddr, "pprof-bind-address", "0", "Address that serves Go's profiles to every client that reaches it; 0 switches it off.")
	fs.BoolVar(&f.leaderElect, "leader-elect", false, "Run only while holding the lease, so that several replicas can stand by.")
	fs.StringVar(&f.leaderElectionNS, "leader-election-namespace", "", "Namespace of the lease; the pod's own by default.")
	fs.DurationVar(&f.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long the replicas that stand by wait for a silent leader.")
	fs.DurationVar(&f.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long a leader tries to renew before it steps down.")
	fs.DurationVar(&f.leaderRetryPeriod, "leader-elect-retry-period", 2*time.Second, "Time between two tries to get or to renew the lease.")
	fs.DurationVar(&f.gracePeriod, "graceful-shutdown-timeout", 20*time.Second, "How long running reconciles may go on after SIGTERM.")
	fs.StringVar(&f.namespaces, "namespaces", os.Getenv("WATCH_NAMESPACES"), "Namespaces to watch, separated by commas; all by default.")
	fs.IntVar(&f.concurrency, "max-concurrent-reconciles", 8, "Clusters that are reconciled at the same time, and StatefulSetDrains.")
	fs.IntVar(&f.rolloutsAtOnce, "rollouts-at-once", 3, "Clusters whose members an upgrade of the operator replaces at the same time, and clusters whose routers it replaces.")
	fs.Float64Var(&f.qps, "kube-api-qps", 100, "Requests a second to the API server.")
	fs.IntVar(&f.burst, "kube-api-burst", 200, "Requests to the API server at once.")
	fs.DurationVar(&f.syncPeriod, "sync-period", 10*time.Hour, "How often every cluster is reconciled although nothing has changed.")
	fs.StringVar(&f.memcachedImage, "memcached-image", os.Getenv("MEMCACHED_IMAGE"), "Image of members whose spec names none.")
	fs.StringVar(&f.operatorImage, "operator-image", os.Getenv("OPERATOR_IMAGE"), "Image that has the drainer: the operator's own.")
	fs.StringVar(&f.assignedUsers, "assigned-users", assignedAuto, "Whether the platform gives the pods of a namespace their user and groups, and refuses others: true, false, or auto, which is true on OpenShift.")
	fs.StringVar(&f.memoryLimit, "memory-limit", os.Getenv("MEMORY_LIMIT"), "Bytes that the container may use; 0 for no limit. The environment's MEMORY_LIMIT by default.")
	fs.BoolVar(&f.version, "version", false, "Print the version, the commit, and the Go release that built it.")
	fs.StringVar(&f.logFormat, "log-format", "json", "json or console.")
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, or error.")
}

func (f *flags) logger() (*zap.Logger, error) {
	config := zap.NewProductionConfig()
	config.EncoderConfig.EncodeTime = zapcore.RFC3339TimeEncoder
	config.EncoderConfig.TimeKey = "time"
	config.Sampling = nil
	config.DisableStacktrace = true
	config.Encoding = f.logFormat
	if f.logFormat == "console" {
		config.EncoderConfig.EncodeLevel = zapcore.CapitalLevelEncoder
	}
	level, err := zap.ParseAtomicLevel(f.logLevel)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	config.Level = level
	logger, err := config.Build()
	if err != nil {
		return nil, fmt.Errorf("--log-format: %w", err)
	}
	return logger, nil
}

func (f *flags) check() error {
	switch {
	case f.memcachedImage == "":
		return errors.New("set --memcached-image or MEMCACHED_IMAGE: the image of members whose spec names none")
	case f.operatorImage == "":
		return errors.New("set --operator-image or OPERATOR_IMAGE: the image that has the drainer, usually the operator's own")
	case f.concurrency < 1:
		return errors.New("--max-concurrent-reconciles must be 1 at least")
	case f.metricsCertPath != "" && !f.metricsSecure:
		return errors.New("--metrics-cert-path is of no use with --metrics-secure=false")
	case f.assignedUsers != assignedAuto && f.assignedUsers != "true" && f.assignedUsers != "false":
		return fmt.Errorf("--assigned-users must be true, false or auto, not %q", f.assignedUsers)
	case f.rolloutsAtOnce < 1:
		return errors.New("--rollouts-at-once must be 1 at least")
	}
	return f.checkMetricsCert()
}

func run(ctx context.Context, f *flags) error {
	if err := f.check(); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server (--kubeconfig, KUBECONFIG, or inside a pod): %w", err)
	}
	config.QPS, config.Burst = float32(f.qps), f.burst
	config.UserAgent = cachev1alpha1.ManagedBy
	mgr, err := ctrl.NewManager(config, f.managerOptions())
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(inProtobuf(config))
	if err != nil {
		return fmt.Errorf("set up the client for logs and watches: %w", err)
	}
	metrics, err := controllers.NewMetrics(ctrlmetrics.Registry, mgr.GetClient())
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	assigned, err := f.usersAreAssigned(clientset.Discovery())
	if err != nil {
		return err
	}
	unlabelled, err := controllers.WatchUnlabelled(mgr, f.watched()...)
	if err != nil {
		return err
	}
	reconciler := &controllers.MemcachedReconciler{
		Client:       mgr.GetClient(),
		Live:         mgr.GetAPIReader(),
		Namespaces:   f.watched(),
		Unlabelled:   unlabelled,
		Events:       mgr.GetEventRecorder(cachev1alpha1.ManagedBy),
		Progress:     controllers.ProgressFromLogs(clientset),
		Memory:       controllers.MemoryFromStats,
		Rings:        controllers.RingFromAdmin,
		Certificates: controllers.CertificateFromPod,
		Steps:        controllers.StepFromPod,
		Nodes:        clientset.CoreV1().Nodes(),
		Metrics:      metrics,
		Options: controllers.Options{
			MemcachedImage: f.memcachedImage, OperatorImage: f.operatorImage,
			OperatorNamespace: ownNamespace(), AssignedUsers: assigned,
		},
		Clock:          clock.RealClock{},
		RolloutsAtOnce: f.rolloutsAtOnce,
		Installation:   f.installation(),
	}
	if err := reconciler.SetupWithManager(mgr, controller.Options{MaxConcurrentReconciles: f.concurrency}); err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	drains := &controllers.StatefulSetDrainReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clients: clientset, Namespaces: f.watched(), Unlabelled: unlabelled,
		Events: mgr.GetEventRecorder(cachev1alpha1.ManagedBy), Metrics: metrics, Clock: clock.RealClock{},
		Installation: f.installation(),
	}
	return start(ctx, mgr, drains, controller.Options{MaxConcurrentReconciles: f.concurrency})
}

// inProtobuf is the configuration of a client that reads protobuf, which costs less than JSON.
func inProtobuf(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.ContentType, c.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return c
}

// start adds the controller of StatefulSetDrains and the probes, and runs the manager.
func start(ctx context.Context, mgr ctrl.Manager, drains *controllers.StatefulSetDrainReconciler, options controller.Options) error {
	if err := drains.SetupWithManager(mgr, options); err != nil {
		return fmt.Errorf("set up the controller of StatefulSetDrains: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", healthz.Ping)); err != nil {
		return fmt.Errorf("set up the probes: %w", err)
	}
	return mgr.Start(ctx)
}

const (
	assignedAuto = "auto"
	// openShiftSecurity is the API group of OpenShift's security context constraints, which assign
	// users.
	openShiftSecurity = "security.openshift.io"
)

// usersAreAssigned tells whether pods must not name their user, by the flag or because the API
// server has OpenShift's group.
func (f *flags) usersAreAssigned(api discovery.ServerGroupsInterface) (bool, error) {
	if f.assignedUsers != assignedAuto {
		return f.assignedUsers == "true", nil
	}
	groups, err := api.ServerGroups()
	if err != nil {
		return false, fmt.Errorf("ask the API server for its groups (or set --assigned-users): %w", err)
	}
	return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == openShiftSecurity }), nil
}

func (f *flags) managerOptions() ctrl.Options {
	metrics := metricsserver.Options{
		BindAddress:   f.metricsAddr,
		SecureServing: f.metricsSecure,
		TLSOpts:       []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
	}
	if f.metricsSecure {
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if f.metricsCertPath != "" {
		metrics.CertDir, metrics.CertName, metrics.KeyName = f.metricsCertPath, f.metricsCertName, f.metricsKey
	}
	cache := controllers.CacheOptions(f.watched()...)
	cache.SyncPeriod = &f.syncPeriod
	return ctrl.Options{
		Scheme:                        controllers.NewScheme(),
		Metrics:                       metrics,
		HealthProbeBindAddress:        f.probeAddr,
		LeaderElection:                f.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       f.leaderElectionNS,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &f.leaseDuration,
		RenewDeadline:                 &f.renewDeadline,
		RetryPeriod:                   &f.leaderRetryPeriod,
		GracefulShutdownTimeout:       &f.gracePeriod,
		PprofBindAddress:              f.pprofAddr,
		Cache:                         cache,
	}
}

// leaseName is the name of the lease of leader election.
const leaseName = "memcached-operator." + cachev1alpha1.Group

// installation is the name of this installation of the operator: the name of its lease, which only its own
// replicas share. Outside of a cluster, the machine's name is the installation's.
func (f *flags) installation() string {
	where := cmp.Or(f.leaderElectionNS, ownNamespace())
	if where == "" {
		host, err := os.Hostname()
		if err != nil {
			return ""
		}
		where = host
	}
	return where + "/" + leaseName
}

// checkMetricsCert fails if the certificate can't be used. Otherwise the manager would serve a
// self-signed one, which no client trusts.
func (f *flags) checkMetricsCert() error {
	if f.metricsCertPath == "" {
		return nil
	}
	_, err := tls.LoadX509KeyPair(filepath.Join(f.metricsCertPath, f.metricsCertName), filepath.Join(f.metricsCertPath, f.metricsKey))
	if err != nil {
		return fmt.Errorf("read the certificate of --metrics-cert-path: %w", err)
	}
	return nil
}

// watched returns the namespaces of the flag; none means all.
func (f *flags) watched() []string { return split(f.namespaces) }

// split splits names at commas.
func split(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// ownNamespace is where this operator runs; empty outside of a cluster.
func ownNamespace() string {
	name, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}
