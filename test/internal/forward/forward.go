// Package forward reaches the members of any cluster from outside it, through
// the API server's port forwarding.
package forward

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Pod forwards a free port on loopback to a port of the pod, until ctx ends,
// and returns the local address.
func Pod(ctx context.Context, config *rest.Config, namespace, pod string, port int) (string, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", err
	}
	url := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).
		SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", port)}, ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return "", fmt.Errorf("forward a port to pod %s: %w", pod, err)
	case <-ctx.Done():
		return "", ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), nil
}
