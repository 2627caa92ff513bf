package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

func (w *world) serverList() *corev1.ConfigMap {
	c := &corev1.ConfigMap{}
	return found(w, c, admin.Get(w.Context(), w.key(name+"-servers"), c))
}

// listed returns the servers of the ConfigMap; nil if there is no ConfigMap.
func (w *world) listed() []string {
	w.Helper()
	list := w.serverList()
	if list == nil {
		return nil
	}
	var servers []string
	if err := json.Unmarshal([]byte(list.Data["servers.json"]), &servers); err != nil {
		w.Fatal(err)
	}
	equal(w, "the list for the environment", list.Data["MEMCACHE_SERVERS"], strings.Join(servers, ","))
	return servers
}

func (w *world) ring(n int) []string {
	var servers []string
	for i := range n {
		servers = append(servers, fmt.Sprintf("cache-%d.cache.%s.svc:11211", i, w.namespace))
	}
	return servers
}

// before fails unless the first write of that name comes before the first write of the second name.
func (w *world) before(first, second string, from int) {
	w.Helper()
	index := func(what string) int {
		return slices.IndexFunc(w.journal.Writes()[from:], func(write operator.Write) bool { return write.String() == what })
	}
	if i, j := index(first), index(second); i < 0 || j < 0 || i > j {
		w.Errorf("%q is write %d, %q is write %d\n%s", first, i, second, j, w.picture())
	}
}

func TestListLosesMembersBeforeTheyLeave(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	equal(w, "the list", w.listed(), w.ring(3))
	equal(w, "status.servers", w.memcached().Status.Servers, w.ring(3))
	begin := len(w.journal.Writes())
	w.scale(2)
	w.settled(2)
	w.before("patch configmaps cache-servers", "patch statefulsets cache", begin)
	equal(w, "the list", w.listed(), w.ring(2))
	equal(w, "status.servers", w.memcached().Status.Servers, w.ring(2))
}

func TestListGainsMembersOnceAllAreReady(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Unready(w.namespace, true)
	w.scale(5)
	w.eventually("five members", func() error {
		if n := w.memcached().Status.Size; n != 5 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	w.always("the list has the three that are ready", func() error {
		if got := w.listed(); !slices.Equal(got, w.ring(3)) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	equal(w, "status.servers", w.memcached().Status.Servers, w.ring(3))
	kubes.Unready(w.namespace, false)
	w.settled(5)
	equal(w, "the list", w.listed(), w.ring(5))
	equal(w, "status.servers", w.memcached().Status.Servers, w.ring(5))
}

// In the second half, members never get ready while others are replaced, and the operator restarts meanwhile.
func TestRollingRestartLeavesTheListAlone(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	before := w.serverList()
	kubes.Unready(w.namespace, true)
	w.change(w.memcached(), `{"spec":{"podTemplate":{"annotations":{"example.com/rolled":"yes"}}}}`)
	w.eventually("a member that isn't ready", func() error {
		if n := w.memcached().Status.ReadySize; n != 2 {
			return fmt.Errorf("%d are ready", n)
		}
		return nil
	})
	w.restartOperator()
	equal(w, "status.servers", w.memcached().Status.Servers, w.ring(3))
	kubes.Unready(w.namespace, false)
	w.eventually("every member rolled", func() error {
		for _, p := range w.pods() {
			if p.Annotations["example.com/rolled"] != "yes" {
				return errors.New(p.Name)
			}
		}
		return nil
	})
	w.settled(3)
	equal(w, "the list's version", w.serverList().ResourceVersion, before.ResourceVersion)
	equal(w, "status.servers", w.memcached().Status.Servers, w.ring(3))
}

func TestHibernatedClusterListsNoMemberAndResumesAsAWhole(t *testing.T) {
	tier.Second(t, "TestHibernateKeepsTheClaimsAndResumesOnThem")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	w.scale(0)
	w.settled(0)
	equal(w, "the list", len(w.listed()), 0)
	w.scale(3)
	w.settled(3)
	equal(w, "the list", w.listed(), w.ring(3))
}

func TestListIsPutRight(t *testing.T) {
	w := newWorld(t)
	w.create(sample())
	w.settled(3)
	want := w.places(3)
	equal(w, "the list of a cluster without storage", w.listed(), want)
	right := func() error {
		if got := w.listed(); !slices.Equal(got, want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	}
	w.change(w.serverList(), `{"data":{"servers.json":"[\"evil:1\"]","MEMCACHE_SERVERS":"evil:1"}}`)
	w.eventually("the list again", right)
	w.delete(w.serverList())
	w.eventually("the ConfigMap again", right)
}

// If another owner's ConfigMap has the list's name, members must not leave, because clients can't be told.
func TestMembersStayWhileTheListIsAnothers(t *testing.T) {
	tier.Second(t, "TestListLosesMembersBeforeTheyLeave")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	w.stopOperator()
	w.delete(w.serverList())
	foreign := &corev1.ConfigMap{Data: map[string]string{"theirs": "kept"}}
	foreign.Name = name + "-servers"
	w.create(foreign)
	w.startOperator()
	w.scale(2)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	w.always("the StatefulSet keeps its size", func() error { return w.replicasAre(3) })
	equal(w, "their data", w.serverList().Data, map[string]string{"theirs": "kept"})
	w.delete(foreign)
	kubes.Play(w.namespace, player.Succeed(1))
	w.settled(2)
}
