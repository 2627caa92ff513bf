package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/test/internal/deployed"
)

// prefix begins the names of the tests' namespaces.
const prefix = "e2e-"

// putInOrder removes what a killed run has left: its namespaces, and its temporary changes of the cluster.
// putInOrder changes nothing in a cluster that another run is using.
func putInOrder(ctx context.Context) error {
	others, err := deployed.RemoveLeftovers(ctx, kube)
	if err != nil || others {
		return err
	}
	var nodes corev1.NodeList
	if err := kube.List(ctx, &nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		if err := putNodeInOrder(ctx, &nodes.Items[i]); err != nil {
			return fmt.Errorf("put %s in order: %w", nodes.Items[i].Name, err)
		}
	}
	if err := removeMetrics(ctx); err != nil {
		return err
	}
	deployment := &appsv1.Deployment{}
	if err := client.IgnoreNotFound(kube.Get(ctx, operatorKey, deployment)); err != nil || deployment.Name == "" {
		return err
	}
	if image, is := strings.CutSuffix(deployment.Spec.Template.Spec.Containers[0].Image, nextTag); is {
		return deployOperator(ctx, image)
	}
	return nil
}

// putNodeInOrder lets the node run, take pods, and let all packets through.
func putNodeInOrder(ctx context.Context, n *corev1.Node) error {
	pid, err := deployed.Kubelet(n.Name)
	if err != nil { // the node was stopped
		if out, err := exec.CommandContext(ctx, "../../bin/cluster", "node", "start", n.Name).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if pid, err = deployed.Kubelet(n.Name); err != nil {
			return err
		}
	}
	if err := deployed.Signal(pid, syscall.SIGCONT); err != nil {
		return err
	}
	if n.Spec.Unschedulable {
		if err := kube.Patch(ctx, n, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":false}}`))); err != nil {
			return err
		}
	}
	tables, err := nft(ctx, n.Name, "list tables\n")
	if err != nil {
		return err
	}
	for line := range strings.Lines(tables) {
		if table, is := strings.CutPrefix(strings.TrimSpace(line), "table inet "+prefix); is {
			if _, err := nft(ctx, n.Name, fmt.Sprintf("delete table inet %s%s\n", prefix, table)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeMetrics removes the metrics API that a test has served.
func removeMetrics(ctx context.Context) error {
	api := metricsAPI("")
	if err := kube.Get(ctx, client.ObjectKeyFromObject(api), api); err != nil {
		return client.IgnoreNotFound(err)
	}
	if namespace, _, _ := unstructured.NestedString(api.Object, "spec", "service", "namespace"); !strings.HasPrefix(namespace, prefix) {
		return nil
	}
	return client.IgnoreNotFound(kube.Delete(ctx, api))
}
