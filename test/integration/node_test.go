package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tied"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// node is in place of the kubelet of the player's node: it forwards ports of pods to real memcacheds, and has
// their logs. node answers for pods that a test has put there, and for no others.
var node = struct {
	sync.Mutex
	once sync.Once
	err  error
	// members are the sockets of memcacheds, logs the files of containers' logs, by NAMESPACE/POD.
	members, logs map[string]string
}{members: map[string]string{}, logs: map[string]string{}}

// serveNode starts it, and tells the API server where it is. The node ends with the test binary.
func serveNode() error {
	node.once.Do(func() {
		server := httptest.NewTLSServer(http.HandlerFunc(nodeAnswers))
		_, port, err := net.SplitHostPort(server.Listener.Addr().String())
		if err != nil {
			node.err = err
			return
		}
		patch := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, port)
		the := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: player.NodeName}}
		node.err = admin.Status().Patch(context.Background(), the, client.RawPatch(types.MergePatchType, []byte(patch)))
	})
	return node.err
}

func nodeAnswers(w http.ResponseWriter, r *http.Request) {
	what, pod, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if what == "containerLogs" {
		pod = strings.TrimSuffix(pod, "/memcached")
	}
	node.Lock()
	socket, log := node.members[pod], node.logs[pod]
	node.Unlock()
	switch {
	case what == "containerLogs" && log != "":
		stamped(w, log)
	case what != "portForward" || socket == "":
		http.Error(w, "there is no such pod", http.StatusNotFound)
	default:
		forwardTo(socket, w, r)
	}
}

// stamped writes the log as a kubelet does.
func stamped(w io.Writer, log string) {
	text, _ := os.ReadFile(log)
	for line := range strings.Lines(string(text)) {
		fmt.Fprint(w, time.Now().UTC().Format(time.RFC3339Nano), " ", line)
	}
}

func forwardTo(socket string, w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return
	}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			defer s.Close()
			if <-replied; s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				return // there is no error
			}
			to, err := net.Dial("unix", socket)
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(to, s)
				to.Close()
			}()
			_, _ = io.Copy(s, to)
		}()
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}

// real puts a real memcached where the port of a member's pod leads.
func (w *world) real(pod string, args ...string) *served {
	w.Helper()
	if err := serveNode(); err != nil {
		w.Fatalf("play the node: %v", err)
	}
	_, err := exec.LookPath("memcached")
	tier.Needs(w, "memcached", err)
	dir, err := os.MkdirTemp("", "m") // a socket's path has at most 107 bytes, and a test's folder has its name
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, logs := filepath.Join(dir, "s"), filepath.Join(dir, "log")
	log, err := os.Create(logs)
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.CommandContext(wait.Context(w), "memcached", append([]string{"-u", "root", "-s", socket, "-m", "64"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := tied.Start(cmd); err != nil {
		w.Fatal(err)
	}
	m := &served{world: w}
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
	})
	wait.For(w, "memcached", func() (err error) {
		m.conn, err = net.Dial("unix", socket)
		return err
	})
	m.answers = bufio.NewScanner(m.conn)
	node.Lock()
	defer node.Unlock()
	node.members[w.namespace+"/"+pod], node.logs[w.namespace+"/"+pod] = socket, logs
	return m
}

// served is a memcached that a test speaks to.
type served struct {
	*world
	conn    net.Conn
	answers *bufio.Scanner
}

// set stores items, each with the key as a part of its value.
func (m *served) set(keys []string) {
	m.Helper()
	out := bufio.NewWriter(m.conn)
	for i, key := range keys {
		value := key + strings.Repeat("v", 200+i%800)
		fmt.Fprintf(out, "set %s 0 0 %d noreply\r\n%s\r\n", key, len(value), value)
	}
	if err := out.Flush(); err != nil {
		m.Fatal(err)
	}
}

// store stores one item.
func (m *served) store(key, value string) {
	m.Helper()
	if _, err := fmt.Fprintf(m.conn, "set %s 0 0 %d noreply\r\n%s\r\n", key, len(value), value); err != nil {
		m.Fatal(err)
	}
	m.holds() // it has done so
}

// holds asks for items and bytes.
func (m *served) holds() (items, bytes int64) {
	m.Helper()
	fmt.Fprint(m.conn, "stats\r\n")
	for m.answers.Scan() {
		line := m.answers.Text()
		_, _ = fmt.Sscanf(line, "STAT curr_items %d", &items)
		_, _ = fmt.Sscanf(line, "STAT bytes %d", &bytes)
		if line == "END" {
			return items, bytes
		}
	}
	m.Fatalf("no statistics: %v", m.answers.Err())
	return 0, 0
}

// The plugin asks real members through the API server. Members then have as much more as it says that they get,
// when each item of the leaving member is at the member where its client looks for it.
func TestThePlanOfRealItemsIsWithinATwentieth(t *testing.T) {
	tier.Second(t, "TestAForecastIsWithinATwentiethOfWhatMoves")
	w := newWorld(t)
	p := w.withPlugin()
	w.storageCluster(apitest.MakeMemcached(name), 3)
	var of [3]*served
	for i := range of {
		of[i] = w.real(fmt.Sprintf("%s-%d", name, i))
	}
	owner := func(size int) routing.Owner {
		var servers []routing.Server
		for _, text := range w.memcached().Status.Servers[:size] {
			server, err := routing.ParseServer(text)
			if err != nil {
				t.Fatal(err)
			}
			servers = append(servers, server)
		}
		o, err := routing.New(w.memcached().Spec.Routing.RingClient(), servers)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	three, two := owner(3), owner(2)
	var keys [3][]string
	var leave [2][]string
	for i := range 60_000 { // a twentieth of a flow is five standard deviations
		key := fmt.Sprintf("user:%x:profile", i*2654435761)
		at := three.Owner([]byte(key))
		if keys[at] = append(keys[at], key); at == 2 {
			to := two.Owner([]byte(key))
			leave[to] = append(leave[to], key)
		}
	}
	for i := range of {
		of[i].set(keys[i])
	}

	f := p.plan(0, "--size=2")
	if len(f.Flows) != 2 || len(f.Unknown) > 0 || f.Loses() {
		t.Fatalf("the forecast is %s", asJSON(f))
	}
	for i, flow := range f.Flows {
		items, bytes := of[i].holds()
		of[i].set(leave[i])
		itemsNow, bytesNow := of[i].holds()
		if off := math.Abs(float64(flow.Items)/float64(itemsNow-items) - 1); off > 0.05 {
			t.Errorf("%s to %s: forecast %d items, %d came", flow.From, flow.To, flow.Items, itemsNow-items)
		}
		if off := math.Abs(float64(flow.Bytes)/float64(bytesNow-bytes) - 1); off > 0.05 {
			t.Errorf("%s to %s: forecast %d bytes, %d came", flow.From, flow.To, flow.Bytes, bytesNow-bytes)
		}
	}

	key := keys[0][0]
	value, _ := p.says(0, "", "get", name, key)
	if !strings.HasPrefix(value, key+"vvv") {
		t.Errorf("get: %.40q", value)
	}
	p.says(0, "", "touch", name, key, "100")
	p.says(5, "no\n", "delete", name, key)
	p.says(0, "yes\n", "delete", name, key)
	p.says(1, "", "get", name, key)
	var status struct {
		Members []struct{ Numbers *struct{ Items int64 } }
	}
	out, _ := p.says(0, "", "status", name, "--output=json")
	if err := json.Unmarshal([]byte(out), &status); err != nil || len(status.Members) != 3 || status.Members[2].Numbers == nil || status.Members[2].Numbers.Items != int64(len(keys[2])) {
		t.Errorf("status: %v %s", err, out)
	}
}

// A verbose memcached logs keys. Neither they nor values are in an archive for support.
func TestTheArchiveForSupportHasNoKeyOfAVerboseMember(t *testing.T) {
	tier.Second(t, "TestAnArchiveHasNoValueNoKeyAndNoSecret")
	w := newWorld(t)
	p := w.withPlugin()
	w.storageCluster(apitest.MakeMemcached(name), 1)
	m := w.real("cache-0", "-vv")
	m.set([]string{"MARKED-KEY"})
	m.holds()
	out, _ := p.says(0, "", "logs", name)
	if !strings.Contains(out, "MARKED-KEY") {
		t.Fatalf("the member doesn't log its keys:\n%s", out)
	}
	file := filepath.Join(t.TempDir(), "cache.tar")
	p.says(0, "", "support-bundle", name, "--file="+file)
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(archive), "MARKED-KEY") {
		t.Error("the key is in the archive")
	}
	if !strings.Contains(string(archive), "curr_items: \"1\"") {
		t.Error("the archive has no statistics")
	}
}
