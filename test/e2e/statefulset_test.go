package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/statefulsets/resp"
	"example.com/memcached-operator/test/tier"
)

// system is one of the samples of a StatefulSetDrain: servers with data, and a drainer.
type system interface {
	// name is the sample's, server and drainer are the names of the programs.
	name() string
	server() string
	drainer() string
	// put stores an element at its member, of that many. found tells how many members have it, and
	// the right one.
	put(f *fixture, element, members int)
	found(f *fixture, element, members int) int
}

const elements = 300

func TestNothingOfRedisIsLostWhenItIsScaledDown(t *testing.T) { losesNothing(t, redis{}) }

func TestNothingOfASpoolIsLostWhenItIsScaledDown(t *testing.T) {
	tier.Second(t, "TestNothingOfRedisIsLostWhenItIsScaledDown")
	losesNothing(t, spool{})
}

// losesNothing takes a sample from three members to one and back. In mid-drain the drainer is killed, a claim
// is deleted by hand, and the StatefulSet is scaled up. Status has the drainer's counts.
func losesNothing(t *testing.T, s system) {
	t.Parallel()
	f := inNamespace(t)
	f.name = s.name()
	sample, err := os.ReadFile(samples + "statefulsetdrain_" + f.name + ".yaml")
	f.must(err)
	// Files that a worker has consumed go with its member's volume, and would seem to be lost.
	sample = bytes.ReplaceAll(sample, []byte("--every=5s"), []byte("--every=0s"))
	file := filepath.Join(t.TempDir(), "sample.yaml")
	f.must(os.WriteFile(file, sample, 0o600))
	f.kubectl("apply", "-f", file)
	f.membersReady(3)
	for i := range elements {
		s.put(f, i, 3)
	}

	goOn := f.stopMember(s, 0)
	f.scaleSet(1)
	first := f.drains(s)
	f.signal(syscall.SIGKILL, f.processOf(first, s.drainer()))
	f.eventually("another drainer is at work", func() bool {
		return slices.ContainsFunc(f.drainers(), func(p corev1.Pod) bool { return p.UID != first.UID })
	})
	f.eventually("what it has counted, by its log, is in status", func() bool { return f.drain().Status.Progress == "0%" })
	f.kubectl("delete", "pvc", "--wait=false", f.drain().Status.Drains[0].Claims[0])
	f.scaleSet(3)
	f.membersReady(3) // they don't wait for the drains
	if n := f.drain().Status.Draining; n == 0 {
		t.Error("no drain is left: the members have waited for it")
	}
	goOn()
	f.drained(3)
	f.expectElements(s, 3)

	f.scaleSet(1)
	f.drained(1)
	f.membersReady(1)
	f.expectElements(s, 1)
	var claims corev1.PersistentVolumeClaimList
	f.must(kube.List(f.ctx, &claims, client.InNamespace(f.namespace)))
	if len(claims.Items) != 1 {
		t.Errorf("%d claims are left, want that of the one member", len(claims.Items))
	}
}

func (f *fixture) drain() *cachev1alpha1.StatefulSetDrain {
	f.Helper()
	d := &cachev1alpha1.StatefulSetDrain{}
	f.must(kube.Get(f.ctx, f.key(f.name), d))
	return d
}

// scaleSet acts as kubectl scale.
func (f *fixture) scaleSet(replicas int) {
	f.Helper()
	f.kubectl("scale", "statefulset", f.name, fmt.Sprintf("--replicas=%d", replicas))
}

// membersReady waits until the StatefulSet has exactly so many, all ready.
func (f *fixture) membersReady(n int32) {
	f.Helper()
	f.eventually(fmt.Sprintf("%d members are ready", n), func() bool {
		set := &appsv1.StatefulSet{}
		f.must(kube.Get(f.ctx, f.key(f.name), set))
		return set.Status.ObservedGeneration == set.Generation && set.Status.Replicas == n && set.Status.ReadyReplicas == n
	})
}

// drained waits until no volume of a departed member is left, and so many members are wanted.
func (f *fixture) drained(members int32) {
	f.Helper()
	f.eventually("each departed member is drained", func() bool {
		d := f.drain()
		return d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == members && d.Status.Draining == 0 && meta.IsStatusConditionTrue(d.Status.Conditions, cachev1alpha1.ConditionReady)
	})
	for _, last := range f.drain().Status.LastDrains {
		f.Logf("%+v", last)
		if last.Result != "Drained" && last.Result != "Returned" {
			f.Errorf("the volume of member %d was not drained: %s", last.Ordinal, last.Result)
		}
	}
}

// stopMember stops its process, so that no drain of the others can end. The member is still Ready: its node
// takes connections for it.
func (f *fixture) stopMember(s system, ordinal int) (goOn func()) {
	f.Helper()
	pid := f.processOf(f.pod(ordinal), s.server())
	f.signal(syscall.SIGSTOP, pid)
	goOn = func() { f.signal(syscall.SIGCONT, pid) }
	f.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	return goOn
}

// drains waits until a drainer is at work, and returns its pod.
func (f *fixture) drains(s system) (pod *corev1.Pod) {
	f.Helper()
	f.eventually("a drainer is at work", func() bool {
		for _, p := range f.drainers() {
			if len(f.processesOf(&p, s.drainer())) > 0 {
				pod = &p
			}
		}
		return pod != nil
	})
	return pod
}

func (f *fixture) expectElements(s system, members int) {
	f.Helper()
	lost := 0
	for i := range elements {
		if n := s.found(f, i, members); n == 0 {
			lost++
		}
	}
	if lost > 0 {
		f.Errorf("%d of %d elements are lost", lost, elements)
	}
}

// at is the address of a member's pod.
func (f *fixture) at(ordinal, port int) string {
	f.Helper()
	return fmt.Sprintf("%s:%d", f.pod(ordinal).Status.PodIP, port)
}

type redis struct{}

func (redis) name() string    { return "redis" }
func (redis) server() string  { return "redis-server" }
func (redis) drainer() string { return "redisdrain" }

func (redis) call(f *fixture, ordinal int, args ...string) any {
	f.Helper()
	c, err := resp.Dial("tcp", f.at(ordinal, 6379), time.Minute)
	f.must(err)
	defer c.Close()
	answer, err := c.Call(args...)
	f.must(err)
	return answer
}

func (r redis) put(f *fixture, element, members int) {
	key := fmt.Sprint("key-", element)
	r.call(f, resp.Owner(key, members), "SET", key, fmt.Sprint("value of ", element))
}

// found asks the servers that have had the key: after a scale-up, a client asks the owner of fewer
// servers, too.
func (r redis) found(f *fixture, element, members int) (n int) {
	key, asked := fmt.Sprint("key-", element), map[int]bool{}
	for ; members > 0; members-- {
		owner := resp.Owner(key, members)
		if !asked[owner] && r.call(f, owner, "GET", key) == fmt.Sprint("value of ", element) {
			n++
		}
		asked[owner] = true
	}
	return n
}

type spool struct{}

func (spool) name() string    { return "spool" }
func (spool) server() string  { return "spool" }
func (spool) drainer() string { return "spool" }

func (spool) put(f *fixture, element, members int) {
	f.Helper()
	request, err := http.NewRequestWithContext(f.ctx, http.MethodPut, fmt.Sprintf("http://%s/file-%d", f.at(element%members, 8080), element), strings.NewReader("content"))
	f.must(err)
	answer, err := http.DefaultClient.Do(request)
	f.must(err)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		f.Fatalf("PUT of file %d: %s", element, answer.Status)
	}
}

// found counts the members that have the file.
func (spool) found(f *fixture, element, members int) (n int) {
	f.Helper()
	for ordinal := range members {
		answer, err := http.Get("http://" + f.at(ordinal, 8080) + "/")
		f.must(err)
		lists := map[string][]string{}
		err = json.NewDecoder(answer.Body).Decode(&lists)
		_ = answer.Body.Close()
		f.must(err)
		for _, names := range lists {
			for _, name := range names {
				if name == fmt.Sprint("file-", element) {
					n++
				}
			}
		}
	}
	return n
}
