package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// follower is a library that follows the list by itself.
type follower struct {
	name  string
	start func(*fixture) library
	// stranger is set if the operator doesn't know the library's distribution: then no mover moves its items to
	// where it looks.
	stranger bool
}

// followers are listed by the routing of the cluster that they share. `make clients` installs those that Debian
// doesn't have.
var followers = map[cachev1alpha1.Client][]follower{
	"gomemcache": {
		{name: "memcached-elasticache", stranger: true, start: func(f *fixture) library {
			return f.startClient("node", f.installed("elasticache.js"), f.discovery())
		}},
	},
	"dskit": {
		{name: "Thanos", start: func(f *fixture) library { return f.startClient(f.installed("thanos"), f.discovery()) }},
		{name: "dskit", start: func(f *fixture) library {
			return f.startClient(f.installed("dskit"), fmt.Sprintf("dnssrvnoa+_memcached._tcp.%s-list.%s.svc.cluster.local", f.name, f.namespace))
		}},
	},
	ringClient:   {{name: "pylibmc", start: func(f *fixture) library { return f.startPythonByFile("pylibmc") }}},
	"pymemcache": {{name: "pymemcache", start: func(f *fixture) library { return f.startPythonByFile("pymemcache") }}},
}

// TestJourneyOfClientsThatFollow the list in each way: by discovery, by DNS, and by the mounted ConfigMap,
// while a NetworkPolicy lets in only the clients that it names, and the operator's own pods. Another
// application reads, overwrites and deletes its keys all the time, and knows their values: no read finds a
// value older than the last acknowledged one, nor one that was deleted while nothing moved. After each
// scaling every key is found, although moves and a member are killed.
func TestJourneyOfClientsThatFollow(t *testing.T) {
	t.Parallel()
	const client = "dskit"
	byFile := followers[ringClient][0]
	byFile.stranger = true // this cluster has the routing of the others
	spec := followed(client)
	open(&spec)
	f := setup(t, spec)
	f.letsInOnlyWhoIsNamed(3)
	f.eachTellsOf(3)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	a := newWriters(f, client, random)
	a.settle(3)
	a.fill()
	defer a.start()()
	all := f.followAll(append(followers[client], byFile))

	movers := f.watchMovers()
	for _, size := range []int32{2, 3} {
		began := time.Now()
		f.scaleFollowed(size)
		f.eventually("a move was killed", f.killMove)
		f.eachFollows(all, size)
		a.findsAllAfter(size, began)
	}
	f.expectStreamed(movers())
	for _, l := range all {
		l.ends()
	}

	t.Log("a member leaves at once, and another one is killed meanwhile")
	f.patch(f.memcached(), `{"spec":{"routing":{"patience":"0s"}}}`)
	began := time.Now()
	f.scale(2)
	time.Sleep(time.Duration(random.Int64N(int64(6 * time.Second))))
	a.crash(random.IntN(2))
	a.findsAllAfter(2, began)
	if r := f.lastReceipt(); r.Unclean {
		t.Errorf("the receipt is %+v", r)
	}
	a.report()
}

// TestRealClientsFollowEachScaling starts real client libraries once. The libraries read and write all the
// time. After each scaling their new items are on all present members, and they find all items that they have
// ever stored. A member that leaves waits for the libraries, so that no read fails. (How many reads miss
// meanwhile depends on speed: make bench-continuity measures it.)
func TestRealClientsFollowEachScaling(t *testing.T) {
	tier.Second(t, "TestJourneyOfClientsThatFollow")
	for client, libraries := range followers {
		t.Run(string(client), func(t *testing.T) {
			t.Parallel()
			followEachScaling(t, followed(client), libraries)
		})
	}
}

// TestRealClientsFollowMembersWithoutVolumes as well: those of Loki, Mimir and Thanos, in front of members that hold
// the only copy of their items.
func TestRealClientsFollowMembersWithoutVolumes(t *testing.T) {
	tier.Second(t, "TestAMemberWithoutAVolumeStaysUntilItsItemsAreMoved")
	t.Parallel()
	const client = "dskit"
	spec := followed(client)
	spec.Storage = &cachev1alpha1.StorageSpec{Mode: cachev1alpha1.StorageMemory}
	followEachScaling(t, spec, followers[client])
}

// followEachScaling scales a cluster of three members while these libraries use it.
func followEachScaling(t *testing.T, spec cachev1alpha1.MemcachedSpec, libraries []follower) {
	t.Helper()
	f := setup(t, spec)
	f.eachTellsOf(3)
	all := f.followAll(libraries)
	for _, size := range []int32{3, 5, 2, 3} {
		f.scaleFollowed(size)
		f.eachFollows(all, size)
	}
	for _, l := range all {
		l.ends()
	}
}

// followed is a cluster of three members that clients follow.
func followed(client cachev1alpha1.Client) cachev1alpha1.MemcachedSpec {
	spec := roomForSome(persistent(3))
	spec.Routing.Client, spec.Discovery = client, &cachev1alpha1.DiscoverySpec{}
	spec.Routing.Patience = &metav1.Duration{Duration: wait.Long}
	return spec
}

// scaleFollowed scales the cluster. Members that leave wait for the last client. If members join, moves need not wait
// for the strangers, which look for some of their items at other members than the list's.
func (f *fixture) scaleFollowed(size int32) {
	f.Helper()
	patience := wait.Long
	if size > *f.memcached().Spec.Size {
		patience = 10 * time.Second
	}
	f.patch(f.memcached(), fmt.Sprintf(`{"spec":{"routing":{"patience":%q}}}`, patience))
	f.scale(size)
}

// eachTellsOf waits until each of so many members was told of all.
func (f *fixture) eachTellsOf(members int) {
	f.Helper()
	f.eventually("each member has been told of all", func() bool { // Thanos ends if its first question fails
		for ordinal := range members {
			if f.discovered(ordinal) != members {
				return false
			}
		}
		return true
	})
}

func (f *fixture) followAll(libraries []follower) (all []*following) {
	f.Helper()
	for _, l := range libraries {
		all = append(all, f.follow(l))
	}
	return all
}

// eachFollows checks that each library follows a scaling, and finds all its items after it.
func (f *fixture) eachFollows(all []*following, size int32) {
	f.Helper()
	f.eventually(fmt.Sprintf("the list has %d", size), func() bool { return len(f.memcached().Status.Servers) == int(size) })
	listed := time.Now()
	for _, l := range all {
		l.uses(int(size))
		f.Logf("%s uses %d members %s after they were listed", l.follower.name, size, time.Since(listed).Round(100*time.Millisecond))
	}
	func() {
		for _, l := range all {
			if l.stranger { // it never asks where the items are moved to, so a move would wait for it
				l.turn.Lock()
				defer l.turn.Unlock()
			}
		}
		f.settled(size)
	}()
	for _, l := range all {
		l.findsAll(fmt.Sprintf("with %d members", size))
	}
}

// following is a library under load. following serves one caller at a time.
type following struct {
	*fixture
	follower
	library
	turn  sync.Mutex
	keys  []string
	fresh int // how many keys were made, to see which members it uses
	// stop ends its load. Then the fields below have their counts.
	stop                    func()
	reads, misses, failures int
	failed                  []string // the first errors
}

// follow starts the library, has it store items, and keeps it reading and writing.
func (f *fixture) follow(l follower) *following {
	f.Helper()
	w := &following{fixture: f, follower: l, library: l.start(f)}
	for i := range 200 {
		w.keys = append(w.keys, fmt.Sprintf("%s:old:%d", l.name, i))
	}
	f.eventually(l.name+" has stored its items", func() bool {
		for _, key := range w.keys {
			if w.set(key, key) != nil {
				return false
			}
		}
		return l.stranger || w.missing() == 0
	})
	var working sync.WaitGroup
	stop := make(chan struct{})
	working.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond): // several libraries share the machine with the cluster
			}
			key := w.keys[n%len(w.keys)]
			value, err := w.get(key)
			w.reads++
			if err == nil && !l.stranger { // a stranger stores items that are not at their owners: no move would end
				err = w.set(fmt.Sprintf("%s:load:%d", l.name, n%500), "load")
			}
			switch {
			case err != nil:
				w.failures++
				if len(w.failed) < 5 {
					w.failed = append(w.failed, fmt.Sprintf("%s, %s: %v", time.Now().Format(time.TimeOnly), key, err))
				}
			case value == "":
				w.misses++
			}
		}
	})
	w.stop = sync.OnceFunc(func() {
		close(stop)
		working.Wait()
	})
	f.Cleanup(w.stop)
	return w
}

// ends ends the load, and checks that no request has failed.
func (w *following) ends() {
	w.Helper()
	w.stop()
	w.Logf("%s: %d reads while the size changed, %d misses, %d errors: %q", w.follower.name, w.reads, w.misses, w.failures, w.failed)
	if w.failures > 0 {
		w.Errorf("%s: %d of %d requests failed: %q", w.follower.name, w.failures, w.reads, w.failed)
	}
}

func (w *following) get(key string) (string, error) {
	w.turn.Lock()
	defer w.turn.Unlock()
	return w.library.get(key)
}

func (w *following) set(key, value string) error {
	w.turn.Lock()
	defer w.turn.Unlock()
	return w.library.set(key, value)
}

// uses waits until new items are on each of the first n members, on no other, and are read
// back, unless movers take them elsewhere.
func (w *following) uses(n int) {
	w.Helper()
	var last string
	defer func() {
		if w.Failed() {
			w.Logf("%s: %s", w.follower.name, last)
		}
	}()
	w.eventually(fmt.Sprintf("%s uses %d members", w.follower.name, n), func() bool {
		var keys []string
		for range 60 {
			w.fresh++
			key := fmt.Sprintf("%s:new:%d", w.follower.name, w.fresh)
			if err := w.set(key, key); err != nil {
				last = err.Error()
				return false
			}
			keys = append(keys, key)
		}
		// A mover may soon take a stranger's items to the members where others look for them.
		if last = w.unread(keys); last != "" && !w.stranger {
			return false
		}
		held := w.holders(keys)
		if last = w.unread(keys); last != "" && !w.stranger { // a mover may have put them there
			return false
		}
		last = fmt.Sprintf("members have %v", held)
		if len(held) != n {
			return false
		}
		for i := range n {
			if held[i] == 0 {
				return false
			}
		}
		return true
	})
}

// unread returns a key whose item the library has stored and doesn't find; empty for none.
func (w *following) unread(keys []string) string {
	for _, key := range keys {
		if value, err := w.get(key); err != nil || value != key {
			return fmt.Sprintf("%s is %q: %v", key, value, err)
		}
	}
	return ""
}

// holders returns how many of the keys each member has.
func (w *following) holders(keys []string) map[int]int {
	w.Helper()
	held := map[int]int{}
	for i := range 5 {
		pod := w.pod(i)
		if pod == nil || pod.Status.PodIP == "" {
			continue
		}
		lines, err := w.say(net.JoinHostPort(pod.Status.PodIP, "11211"), "get "+strings.Join(keys, " "))
		if err != nil {
			continue // the member is starting or ending
		}
		for _, line := range lines {
			if strings.HasPrefix(line, "VALUE ") {
				held[i]++
			}
		}
	}
	return held
}

// missing returns how many items the library has stored and doesn't find.
func (w *following) missing() (n int) {
	for _, key := range w.keys {
		if value, err := w.get(key); err != nil || value != key {
			n++
		}
	}
	return n
}

func (w *following) findsAll(when string) {
	w.Helper()
	if !w.stranger {
		w.eventually(w.follower.name+" finds all its items "+when, func() bool { return w.missing() == 0 })
	}
}

// discovery returns the address at which applications ask for the list.
func (f *fixture) discovery() string {
	return fmt.Sprintf("%s-discovery.%s.svc.cluster.local:11211", f.name, f.namespace)
}

// installed returns the path of a program that `make clients` has installed.
func (f *fixture) installed(program string) string {
	f.Helper()
	return filepath.Join(tier.Clients(f), program)
}

// startPythonByFile starts a library that reads the list from the mounted ConfigMap of a pod, as
// an application in that pod would.
func (f *fixture) startPythonByFile(name string) library {
	f.Helper()
	return f.startClient("/usr/bin/python3", "testdata/library.py", name, filepath.Join(f.mounted(name), "servers"))
}

// mounted returns the directory of the clients' list in a new pod, as its kubelet has mounted it.
func (f *fixture) mounted(role string) string {
	f.Helper()
	pod := f.bystander(role, func(spec *corev1.PodSpec) {
		spec.Volumes = []corev1.Volume{{Name: "list", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: f.name + "-servers"},
		}}}}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "list", MountPath: "/list"}}
	})
	return deployed.ConfigMap(pod.Spec.NodeName, pod.UID, "list")
}

// asInAPod returns a command that resolves names as a pod of the namespace does.
func (f *fixture) asInAPod(command ...string) *exec.Cmd {
	f.Helper()
	dns := &corev1.Service{}
	key := f.key("kube-dns")
	key.Namespace = "kube-system"
	f.must(kube.Get(f.ctx, key, dns))
	resolv := filepath.Join(f.TempDir(), "resolv.conf")
	f.must(os.WriteFile(resolv, fmt.Appendf(nil, "nameserver %s\nsearch %s.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n",
		dns.Spec.ClusterIP, f.namespace), 0o644))
	const script = `mount --bind "$1" /etc/resolv.conf && shift && exec "$@"`
	return exec.CommandContext(f.ctx, "unshare", append([]string{"--mount", "sh", "-ec", script, "sh", resolv}, command...)...)
}

// startClient starts a library that resolves names as a pod does. The library ends at the end of
// its input.
func (f *fixture) startClient(command ...string) library {
	f.Helper()
	cmd := f.asInAPod(command...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	f.must(err)
	out, err := cmd.StdoutPipe()
	f.must(err)
	f.must(cmd.Start())
	f.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		if text := complaints.String(); f.Failed() && text != "" {
			f.Logf("%v: %s", command, text[max(0, len(text)-2000):])
		}
	})
	return &python{requests: json.NewEncoder(in), answers: json.NewDecoder(out)}
}
