// Package deployed connects to the cluster of KUBECONFIG, on which the operator is deployed, and to pods of
// it from outside (forward.go). Package deployed also finds processes on the nodes of the cluster of
// test/cluster, which are this machine: those of containers, and kubelets (processes.go).
package deployed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/internal/harness"
)

const (
	answerTimeout = time.Minute
	interval      = 100 * time.Millisecond
)

// Connect returns a client of the cluster, and its configuration. If there is no
// cluster, or no operator on it, the error names the make target that provides both.
func Connect(ctx context.Context, target string) (client.WithWatch, *rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, nil, fmt.Errorf("find the cluster: %w; run make %s, or set KUBECONFIG", err, target)
	}
	config.QPS, config.Burst = 200, 400
	kube, err := client.NewWithWatch(config, client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := kube.List(ctx, &cachev1alpha1.MemcachedList{}); err != nil {
		return nil, nil, fmt.Errorf("the operator is not deployed (make %s, or make deploy): %w", target, err)
	}
	return kube, config, nil
}

// labelRun has the number of the process, on this machine, that has made a namespace.
const labelRun = "test.example.com/run"

// Namespace returns a namespace of this process, whose name begins with the prefix. If this process is killed,
// RemoveLeftovers of the next one removes it.
func Namespace(prefix string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: map[string]string{labelRun: strconv.Itoa(os.Getpid())}}}
}

// MakeNamespace creates a namespace whose name begins with the prefix.
func MakeNamespace(ctx context.Context, kube client.Client, prefix string) (name string, err error) {
	namespace := Namespace(prefix)
	err = kube.Create(ctx, namespace)
	return namespace.Name, err
}

// RemoveLeftovers deletes the namespaces of processes that have ended, and doesn't wait until they are gone.
// RemoveLeftovers tells whether another process that runs has a namespace: then its changes of the nodes are in
// use.
func RemoveLeftovers(ctx context.Context, kube client.Client) (others bool, err error) {
	var namespaces corev1.NamespaceList
	if err := kube.List(ctx, &namespaces, client.HasLabels{labelRun}); err != nil {
		return false, err
	}
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		if _, err := os.Stat("/proc/" + namespace.Labels[labelRun]); err == nil {
			others = true
			continue
		}
		if err := kube.Delete(ctx, namespace); client.IgnoreNotFound(err) != nil {
			return others, err
		}
	}
	return others, nil
}

// RemoveNamespace deletes the namespace, and expects that nothing holds it.
func RemoveNamespace(ctx context.Context, kube client.Client, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := kube.Delete(ctx, namespace); err != nil {
		return err
	}
	return Until(ctx, "namespace "+name+" is gone", func() error {
		err := kube.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

// Until repeats the check until it succeeds, or the context ends.
func Until(ctx context.Context, what string, check func() error) error {
	return harness.Until(ctx, interval, what, check)
}

// QuietLogs drops the log of the client's libraries: each error is returned, too.
func QuietLogs() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}
