package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/tier"
)

// TestDskitFollowsByDNS uses the real resolver and selector of Loki, Mimir and Tempo, as `make clients` builds
// them.
func TestDskitFollowsByDNS(t *testing.T) {
	tier.Second(t, "TestJourneyOfClientsThatFollow")
	clients := tier.Clients(t)
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	dns := w.startDNS()
	domain := fmt.Sprintf("%s.%s.svc.cluster.local", listName, w.namespace)
	cmd := exec.CommandContext(t.Context(), filepath.Join(clients, "dskit-follow"), dns.address, "dnssrvnoa+_memcached._tcp."+domain)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	answers := bufio.NewScanner(out)
	for _, size := range []int32{3, 5, 2, 3} {
		w.scale(size)
		w.settled(size)
		w.eventually(fmt.Sprintf("dskit has the %d members", size), func() error {
			var names, addresses []string
			for i := range size {
				names = append(names, fmt.Sprintf("%s-%d.%s.:11211", name, i, domain))
				addresses = append(addresses, w.pod(fmt.Sprintf("%s-%d", name, i)).Status.PodIP+":11211")
			}
			want := strings.Join(names, " ") + " = " + strings.Join(addresses, " ")
			if _, err := fmt.Fprintln(in); err != nil || !answers.Scan() {
				t.Fatalf("the program has ended: %v", err)
			}
			if got := answers.Text(); got != want {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
}
