// Package members asks members beside the API server's objects: through a port-forward, by memcached's
// protocol, with the TLS and the login of the spec.
package members

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Dialer connects to a port of a pod.
type Dialer func(ctx context.Context, pod *corev1.Pod, port int32) (net.Conn, error)

// Forwarded connects through the API server and the kubelet, as kubectl port-forward does.
func Forwarded(config *rest.Config, clients kubernetes.Interface) Dialer {
	return func(ctx context.Context, pod *corev1.Pod, port int32) (net.Conn, error) {
		path := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
		dialer, err := tunnel(config, path)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		ready := make(chan struct{})
		forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ctx.Done(), ready, io.Discard, io.Discard)
		if err != nil {
			cancel()
			return nil, err
		}
		ended := make(chan error, 1)
		go func() { ended <- forwarder.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-ended:
			cancel()
			return nil, fmt.Errorf("forward a port to pod %s: %w", pod.Name, err)
		case <-ctx.Done():
			cancel()
			return nil, ctx.Err()
		}
		conn, err := dialForwarded(ctx, forwarder)
		if err != nil {
			cancel()
			return nil, err
		}
		return &forwarded{conn, cancel}, nil
	}
}

// tunnel uses WebSockets, or SPDY if something on the way doesn't support these.
func tunnel(config *rest.Config, url *url.URL) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	older := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(dialer, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

func dialForwarded(ctx context.Context, forwarder *portforward.PortForwarder) (net.Conn, error) {
	ports, err := forwarder.GetPorts()
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
}

// forwarded ends its port-forward when it is closed.
type forwarded struct {
	net.Conn
	stop context.CancelFunc
}

func (f *forwarded) Close() error {
	defer f.stop()
	return f.Conn.Close()
}
