// Package e2e tests the deployed operator on a real node: a real kubelet, real
// memcached, real volumes, and a real client library that reads every key. It
// needs the cluster of test/cluster with the operator deployed; make test-e2e
// sees to both. Tests that stop the kubelet for a moment run by themselves, the
// others in parallel: most of their time they wait for containers.
package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

var (
	kube   client.Client
	config *rest.Config
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New())
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := cachev1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	var err error
	config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("find the cluster: %w; run make test-e2e, or set KUBECONFIG", err)
	}
	config.QPS, config.Burst = 100, 200
	if kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := kube.List(ctx, &cachev1alpha1.MemcachedList{}); err != nil {
		return fmt.Errorf("the operator is not deployed (make deploy): %w", err)
	}
	return nil
}
