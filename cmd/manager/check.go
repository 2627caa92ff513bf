package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
)

const checkText = `manager check tells whether an operator is installed and ready: the API server knows its
kinds, and its Deployment runs what its spec says. It waits for that. helm test runs it.

`

// runCheck is manager check.
func runCheck(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("manager check", flag.ExitOnError)
	deployment := fs.String("deployment", "", "NAMESPACE/NAME of the operator's Deployment.")
	timeout := fs.Duration("timeout", time.Minute, "How long to wait.")
	config.RegisterFlags(fs)
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), checkText)
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err // not reached: the set exits
	}
	key, err := objectKey(*deployment)
	if err != nil {
		return err
	}
	kubernetes, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server (--kubeconfig, KUBECONFIG, or inside a pod): %w", err)
	}
	kubernetes.Timeout = 30 * time.Second // of one request
	api, err := discovery.NewDiscoveryClientForConfig(kubernetes)
	if err != nil {
		return fmt.Errorf("set up the client: %w", err)
	}
	kube, err := client.New(kubernetes, client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return fmt.Errorf("set up the client: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctrl.SetupSignalHandler(), time.Second, *timeout, true, func(ctx context.Context) (bool, error) {
		last = errors.Join(kindsAreServed(api), isReady(ctx, kube, key))
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(last, fmt.Errorf("not ready after %s: %w", *timeout, err))
	}
	fmt.Fprintln(out, "the operator is installed and ready")
	return nil
}

// kindsAreServed fails if the API server lacks a kind of the operator.
func kindsAreServed(api discovery.ServerResourcesInterface) error {
	served, err := api.ServerResourcesForGroupVersion(cachev1alpha1.GroupVersion.String())
	if err != nil {
		return fmt.Errorf("ask the API server for the kinds of %s (are the CRDs installed?): %w", cachev1alpha1.GroupVersion, err)
	}
	for _, kind := range []string{"Memcached", "StatefulSetDrain"} {
		if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
			return fmt.Errorf("the API server does not know %s of %s: install the CRDs", kind, cachev1alpha1.GroupVersion)
		}
	}
	return nil
}

// isReady fails if a Deployment does not run its spec.
func isReady(ctx context.Context, kube client.Reader, key client.ObjectKey) error {
	var d appsv1.Deployment
	if err := kube.Get(ctx, key, &d); err != nil {
		return fmt.Errorf("read Deployment %s: %w", key, err)
	}
	available := slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
	})
	if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas || !available {
		return fmt.Errorf("%d of %d replicas of Deployment %s are ready, %d of its present spec", d.Status.ReadyReplicas, *d.Spec.Replicas, key, d.Status.UpdatedReplicas)
	}
	return nil
}
