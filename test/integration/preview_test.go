package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// plan runs kubectl mc plan, which has to end with that code.
func (p *plugin) plan(code int, args ...string) (f controllers.Forecast) {
	p.Helper()
	out, said := p.says(code, "", append([]string{"plan", name, "--output=json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		p.Fatalf("plan %v: %v\n%s%s", args, err, out, said)
	}
	return f
}

// ownersAre compares kubectl mc owner with a client that was given the list.
func (p *plugin) ownersAre(keys ...string) {
	p.Helper()
	m := p.memcached()
	var servers []routing.Server
	for _, text := range m.Status.Servers {
		server, err := routing.ParseServer(text)
		if err != nil {
			p.Fatal(err)
		}
		servers = append(servers, server)
	}
	client, err := routing.New(m.Spec.Routing.RingClient(), servers)
	if err != nil {
		p.Fatal(err)
	}
	var got []struct{ Key, Member, Server, Node string }
	out, _ := p.says(0, strings.Join(keys[1:], "\n"), "owner", name, keys[0], "--stdin", "--output=json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != len(keys) {
		p.Fatalf("%v: %s", err, out)
	}
	for i, key := range keys {
		owner := client.Owner([]byte(key))
		equal(p.world, "owner of "+key, []string{got[i].Key, got[i].Member, got[i].Server, got[i].Node},
			[]string{key, fmt.Sprintf("%s-%d", name, owner), m.Status.Servers[owner], player.NodeName})
	}
}

// podUIDs are those of the first n members.
func (w *world) podUIDs(n int) (uids []types.UID) {
	for i := range n {
		pod := w.pod(fmt.Sprintf("%s-%d", name, i))
		if pod == nil {
			return nil
		}
		uids = append(uids, pod.UID)
	}
	return uids
}

// The operator acts as the plugin says before a change.
func TestThePlanThatIsShownIsWhatHappens(t *testing.T) {
	w := newWorld(t)
	p := w.withPlugin()
	w.storageCluster(apitest.MakeMemcached(name), 3)

	p.ownersAre("user:17", "user:18", "a", "b", "c", "d", "e", "f")

	f := p.plan(0, "--size=2")
	equal(w, "who leaves, joins and restarts", [][]string{f.Leave, f.Join, f.Restart}, [][]string{{"cache-2"}, nil, nil})
	if f.Elsewhere < 0.25 || f.Elsewhere > 0.42 || f.Blocked != nil {
		t.Errorf("the forecast is %s", asJSON(f))
	}
	equal(w, "the size after a plan", *w.memcached().Spec.Size, 3)
	_, said := p.says(1, "", "plan", name, "--client=nonesuch")
	if !strings.Contains(said, "the API server refuses this change") {
		t.Errorf("an unknown client: %s", said)
	}

	kubes.Play(w.namespace, player.Hang)
	stay := w.podUIDs(2)
	p.says(0, "yes\n", "plan", name, "--size=2", "--apply")
	w.eventually("the drain", func() error {
		if w.pod("cache-2") != nil || w.jobOf(w.claim(2).UID) == nil {
			return errors.New("none yet")
		}
		return nil
	})
	equal(w, "the members that stay", w.podUIDs(2), stay)
	// While a drain runs, the size waits, and the plan says so in the operator's words.
	f = p.plan(4, "--size=1")
	if f.Blocked == nil || f.Blocked.Reason != cachev1alpha1.ReasonWaitingForDrain {
		t.Errorf("the forecast in a drain is %s", asJSON(f))
	}
	w.scale(1)
	message := w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForDrain)
	equal(w, "the operator's words", f.Blocked.Message, message)
	kubes.Play(w.namespace, player.Succeed(5))
	w.settled(1)
}

func TestThePlanOfAnotherMemoryOrClientIsWhatHappens(t *testing.T) {
	tier.Second(t, "TestThePlanThatIsShownIsWhatHappens")
	w := newWorld(t)
	p := w.withPlugin()
	w.storageCluster(apitest.MakeMemcached(name), 2)
	before := w.podUIDs(2)

	f := p.plan(0, "--client=pymemcache")
	equal(w, "who restarts for another client", len(f.Restart), 0)
	if f.Elsewhere < 0.4 || f.Elsewhere > 0.6 {
		t.Errorf("another client moves a share of %v", f.Elsewhere)
	}
	p.says(0, "", "plan", name, "--client=pymemcache", "--apply", "--yes")
	w.settled(2)
	equal(w, "pods after another client", w.podUIDs(2), before)

	f = p.plan(0, "--memory=96Mi")
	equal(w, "who restarts for another memory", f.Restart, []string{"cache-0", "cache-1"})
	equal(w, "warm", f.Warm, true)
	p.says(0, "", "plan", name, "--memory=96Mi", "--apply", "--yes")
	w.eventually("both members are replaced", func() error {
		after := w.podUIDs(2)
		if after == nil || after[0] == before[0] || after[1] == before[1] {
			return errors.New("not yet")
		}
		return nil
	})
	w.settled(2)

	f = p.plan(0, "--size=0")
	equal(w, "hibernates", f.Hibernates, true)
}

func TestThePlanSaysWhenItemsDoNotFit(t *testing.T) {
	tier.Second(t, "TestAForecastSaysWhatDoesNotFit")
	w := newNamespace(t)
	full := pagesOf(26)
	w.full().Store(full)
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name).OnShortage(cachev1alpha1.ShortageWait), 3)
	before := w.memcached()
	after := before.DeepCopy()
	after.Spec.Size = ptr.To[int32](2)
	holds := map[string]controllers.Holds{"cache-0": *full, "cache-1": *full, "cache-2": *full}
	f, err := controllers.Preview(w.Context(), admin, before, after, holds, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Blocked == nil || !f.Loses() || f.Evicted.Bytes < 23<<20 {
		t.Fatalf("the forecast is %s", asJSON(f))
	}
	w.scale(2)
	message := w.condition(cachev1alpha1.ConditionProgressing, "False", cachev1alpha1.ReasonShortOfMemory)
	equal(w, "the operator's words", f.Blocked.Message, message)
	after.Spec.Memory = ptr.To(resource.MustParse("128Mi"))
	if f, err = controllers.Preview(w.Context(), admin, before, after, holds, nil); err != nil || f.Loses() {
		t.Errorf("with twice the memory: %v, %s", err, asJSON(f))
	}
}
