package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"example.com/memcached-operator/controllers"
)

const uninstallText = `manager uninstall removes the operator from a cluster, with all its finalizers.

It waits until the running operator has released what is being deleted and has ended
drains, stops the operator, and removes the finalizers that are left. Claims and volumes
stay, except those of Memcacheds that are deleted with whenDeleted: Delete. With --deployment,
what another installation of the operator manages stays as it is.

`

// uninstallFlags are the flags of manager uninstall.
type uninstallFlags struct {
	deployment, memcacheds, namespaces string
	timeout                            time.Duration
}

func (f *uninstallFlags) register(fs *flag.FlagSet) {
	fs.StringVar(&f.deployment, "deployment", "", "NAMESPACE/NAME of the operator's Deployment, which is scaled to zero; empty if it is stopped already.")
	fs.StringVar(&f.memcacheds, "memcacheds", "Keep", "What happens to Memcacheds and StatefulSetDrains: Keep, and members go on serving; or Delete.")
	fs.StringVar(&f.namespaces, "namespaces", os.Getenv("WATCH_NAMESPACES"), "Namespaces that the operator watches, separated by commas; all by default.")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "How long the operator may take to finish, and then to end.")
	config.RegisterFlags(fs)
}

func (f *uninstallFlags) options() (controllers.UninstallOptions, error) {
	o := controllers.UninstallOptions{Namespaces: split(f.namespaces), Timeout: f.timeout, DeleteClusters: f.memcacheds == "Delete"}
	if f.memcacheds != "Keep" && f.memcacheds != "Delete" {
		return o, fmt.Errorf("--memcacheds is Keep or Delete, not %q", f.memcacheds)
	}
	if f.timeout <= 0 {
		return o, errors.New("--timeout must be longer than 0s")
	}
	if f.deployment == "" {
		return o, nil
	}
	var err error
	o.Deployment, err = objectKey(f.deployment)
	return o, err
}

// objectKey reads --deployment.
func objectKey(deployment string) (client.ObjectKey, error) {
	namespace, name, found := strings.Cut(deployment, "/")
	if !found || namespace == "" || name == "" {
		return client.ObjectKey{}, fmt.Errorf("--deployment is NAMESPACE/NAME, not %q", deployment)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

func runUninstall(args []string, out io.Writer) error {
	var f uninstallFlags
	fs := flag.NewFlagSet("manager uninstall", flag.ExitOnError)
	f.register(fs)
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), uninstallText)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err // not reached: the set exits
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see manager uninstall --help", fs.Arg(0))
	}
	options, err := f.options()
	if err != nil {
		return err
	}
	kubernetes, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server (--kubeconfig, KUBECONFIG, or inside a pod): %w", err)
	}
	kubernetes.Timeout = 30 * time.Second // of one request
	options.Out, options.Lease = out, leaseName
	if options.Client, err = client.New(kubernetes, client.Options{Scheme: controllers.NewScheme()}); err != nil {
		return fmt.Errorf("set up the client: %w", err)
	}
	return controllers.Uninstall(ctrl.SetupSignalHandler(), options)
}
