package deployed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// ForwardPod forwards a free loopback port to a port of the pod, until ctx ends. ForwardPod returns the local
// address.
func ForwardPod(ctx context.Context, config *rest.Config, namespace, pod string, port int) (string, error) {
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

// ForwardPods forwards a free loopback port to that port of the pods, each connection to the next pod, until ctx ends.
// ForwardPods returns the local address.
func ForwardPods(ctx context.Context, config *rest.Config, namespace string, pods []string, port int) (string, error) {
	addresses := make([]string, len(pods))
	for i, pod := range pods {
		var err error
		if addresses[i], err = ForwardPod(ctx, config, namespace, pod, port); err != nil {
			return "", err
		}
	}
	return ForwardInTurn(ctx, func() []string { return addresses })
}

// ForwardInTurn listens on a free loopback port, and passes each connection on to the next address that takes it,
// until ctx ends. ForwardInTurn returns the local address.
func ForwardInTurn(ctx context.Context, addresses func() []string) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for turn := 0; ; turn++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go pass(ctx, conn, addresses(), turn)
		}
	}()
	return listener.Addr().String(), nil
}

// pass passes a connection's bytes on, in both directions, until one end closes.
func pass(ctx context.Context, conn net.Conn, addresses []string, turn int) {
	defer conn.Close()
	to, err := DialNext(ctx, addresses, turn)
	if err != nil {
		return
	}
	defer to.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(to, conn)
		_ = to.Close()
	}()
	_, _ = io.Copy(conn, to)
}

// DialNext connects to the address whose turn it is, or to the next one that takes the connection.
func DialNext(ctx context.Context, addresses []string, turn int) (net.Conn, error) {
	const (
		hesitates = 2 * time.Second // a pod that is gone refuses nothing: the next address is tried, too
		patience  = time.Minute
	)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, len(addresses))
	err := errors.New("there is no address to connect to")
	for tried, answered := 0, 0; answered < len(addresses); {
		var next <-chan time.Time
		if tried < len(addresses) {
			address := addresses[(turn+tried)%len(addresses)]
			tried++
			go func() {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
				results <- result{conn, err}
			}()
			next = time.After(hesitates)
		}
		select {
		case <-next:
		case r := <-results:
			answered++
			if r.err != nil {
				err = r.err
				break
			}
			go func(others int) {
				for range others {
					if r := <-results; r.conn != nil {
						_ = r.conn.Close()
					}
				}
			}(tried - answered)
			return r.conn, nil
		}
	}
	return nil, err
}
