package members

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// kubelet forwards ports as a kubelet does behind an API server, to the address, and speaks no WebSockets.
func kubelet(t *testing.T, address string) *rest.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/shop/pods/cache-0/portforward" || strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			http.Error(w, "no such thing", http.StatusBadRequest)
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			t.Errorf("handshake: %v", err)
			return
		}
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
			go func() {
				<-replied
				if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
					s.Close() // there is no error
					return
				}
				forward(s, address)
			}()
			return nil
		})
		if conn != nil {
			<-conn.CloseChan()
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func forward(s httpstream.Stream, address string) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		_ = s.Reset()
		return
	}
	go func() {
		_, _ = io.Copy(conn, s)
		conn.Close()
	}()
	_, _ = io.Copy(s, conn)
	s.Close()
}

func TestAMemberIsAskedThroughAPortForward(t *testing.T) {
	config := kubelet(t, memcached(t))
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	m := apitest.MakeMemcached("cache").Namespace("shop").Obj()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache-0"}}
	pod.Status.Phase = corev1.PodRunning
	other := *pod.DeepCopy()
	other.Name = "cache-1"
	a, err := Of(t.Context(), secrets{}, Forwarded(config, clients), m)
	if err != nil {
		t.Fatal(err)
	}
	set(t, a, m, &pod, "user:17", []byte("value"))
	if item, err := a.Get(t.Context(), m, &pod, "user:17"); err != nil || string(item.Value) != "value" {
		t.Errorf("get: %+v, %v", item, err)
	}
	numbers, why := a.Each(t.Context(), m, []corev1.Pod{pod, other})
	if n := numbers["cache-0"]; n == nil || n.Items != 1 {
		t.Errorf("numbers: %+v, %v", n, why)
	}
	if why["cache-1"] == nil {
		t.Error("a pod that can't be reached has no error")
	}
}
