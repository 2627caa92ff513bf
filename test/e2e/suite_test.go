// Package e2e tests the deployed operator on a real node: a real kubelet, real memcached, real volumes, and a
// real client library that reads every key. The tests need the cluster of test/cluster with the operator
// deployed; make test-e2e provides both. Tests that stop the kubelet for a moment run by themselves, the
// others in parallel: most of their time they wait for containers.
package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/tier"
)

var (
	kube   client.Client
	config *rest.Config
)

func TestMain(m *testing.M) {
	if os.Getenv("KUBECONFIG") == "" && !tier.Required() {
		fmt.Println("e2e: skipped without KUBECONFIG; make test-e2e brings a cluster up, and runs it")
		return
	}
	ctrl.SetLogger(zap.New())
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() error {
	var err error
	kube, config, err = deployed.Connect(context.Background(), "test-e2e")
	if err != nil {
		return err
	}
	return putInOrder(context.Background())
}
