package integration

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// sample is the customers' sample, with two lines of spec.
func sample() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cachev1alpha1.GroupVersion.String(),
		"kind":       "Memcached",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"size": int64(3), "containerPort": int64(11211)},
	}}
}

func (w *world) deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{}
	return found(w, d, admin.Get(w.Context(), w.key(name), d))
}

// places are the servers of a cluster without storage.
func (w *world) places(n int) []string {
	var servers []string
	for i := range n {
		servers = append(servers, fmt.Sprintf("cache-%d.%s.%s.svc:11211", i, listName, w.namespace))
	}
	return servers
}

func (w *world) service() *corev1.Service {
	s := &corev1.Service{}
	return found(w, s, admin.Get(w.Context(), w.key(name), s))
}

func TestTwoLineSampleGivesADeploymentAndAService(t *testing.T) {
	w := newWorld(t)
	w.create(sample())
	m := w.settled(3)
	d, s := w.deployment(), w.service()
	if d == nil || s == nil {
		t.Fatalf("want a Deployment and a Service\n%s", w.picture())
	}
	container := d.Spec.Template.Spec.Containers[0]
	equal(w, "replicas", *d.Spec.Replicas, 3)
	equal(w, "image", container.Image, "memcached:test")
	equal(w, "command", container.Command, []string{"memcached", "-m", "64", "-p", "11211", "-U", "0"})
	equal(w, "the Service's address", s.Spec.ClusterIP, corev1.ClusterIPNone)
	equal(w, "servers", m.Status.Servers, w.places(3))
	equal(w, "phase", m.Status.Phase, cachev1alpha1.PhaseRunning)
	equal(w, "nodes", len(m.Status.Nodes), 3)
	for _, node := range m.Status.Nodes {
		if w.pod(node) == nil {
			t.Errorf("status.nodes has %s, and no such pod is there", node)
		}
	}
	w.condition(cachev1alpha1.ConditionAvailable, "True", cachev1alpha1.ReasonReady)
	w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
	equal(w, "finalizers", len(m.Finalizers), 0)
	equal(w, "a budget for evictions", w.budget() != nil, true)
}

// placed returns the addresses of the places in DNS, or why the pods don't each have one of them.
func (d *nameServer) placed(w *world, n int) ([]string, error) {
	domain := fmt.Sprintf("%s.%s.svc.cluster.local.", listName, w.namespace)
	records, err := d.ask("_memcached._tcp."+domain, dnsmessage.TypeSRV)
	if err != nil || len(records) != n {
		return nil, fmt.Errorf("%d records: %v, %w", len(records), records, err)
	}
	var free, places []string
	for _, p := range w.pods() {
		if p.DeletionTimestamp == nil {
			free = append(free, p.Status.PodIP)
		}
	}
	for i := range records {
		srv, ok := records[i].Body.(*dnsmessage.SRVResource)
		want := fmt.Sprintf("%s-%d.%s", name, i, domain)
		if !ok || srv.Target.String() != want || srv.Port != 11211 {
			return nil, fmt.Errorf("record %d is %v", i, records[i])
		}
		answers, err := d.ask(want, dnsmessage.TypeA)
		if err != nil || len(answers) != 1 {
			return nil, fmt.Errorf("%s: %v, %w", want, answers, err)
		}
		a, ok := answers[0].Body.(*dnsmessage.AResource)
		if !ok {
			return nil, fmt.Errorf("%s: %v", want, answers[0])
		}
		address := net.IP(a.A[:]).String()
		pod := slices.Index(free, address)
		if pod < 0 {
			return nil, fmt.Errorf("%s is %s, and the pods without another place have %v", want, address, free)
		}
		free, places = slices.Delete(free, pod, pod+1), append(places, address)
	}
	return places, nil
}

// Clients that hash see one cache: every place is another pod, and a pod that replaces another one gets its place.
func TestAPlainClustersListIsOneRing(t *testing.T) {
	w := newWorld(t)
	w.create(sample())
	w.settled(3)
	dns := w.startDNS()
	placed := func(what string, n int) (places []string) {
		w.eventually(what, func() (err error) {
			places, err = dns.placed(w, n)
			return err
		})
		return places
	}
	first := placed("three places", 3)
	equal(w, "the list", w.listed(), w.places(3))
	list := w.serverList().ResourceVersion

	i := slices.IndexFunc(w.pods(), func(p corev1.Pod) bool { return p.Status.PodIP == first[1] })
	w.delete(&w.pods()[i])
	w.eventually("its pod is gone", func() error {
		if slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return p.Status.PodIP == first[1] }) {
			return errors.New("not yet")
		}
		return nil
	})
	w.settled(3)
	second := placed("three places again", 3)
	equal(w, "the first place", second[0], first[0])
	equal(w, "the third place", second[2], first[2])
	equal(w, "the ConfigMap with the list", w.serverList().ResourceVersion, list)

	w.scale(5)
	w.settled(5)
	equal(w, "places that stay", placed("five places", 5)[:3], second)
	equal(w, "the list", w.listed(), w.places(5))

	begin := len(w.journal.Writes())
	w.scale(2)
	w.settled(2)
	placed("two places", 2)
	equal(w, "the list", w.memcached().Status.Servers, w.places(2))
	w.before("patch endpointslices cache-list", "patch deployments cache", begin)
}

func TestPlainClusterFollowsItsScaleSubresource(t *testing.T) {
	w := newWorld(t)
	w.create(sample())
	w.settled(3)
	w.scale(5)
	w.settled(5)
	w.scale(0)
	w.settled(0)
	w.condition(cachev1alpha1.ConditionAvailable, "False", cachev1alpha1.ReasonScaledToZero)
	w.scale(1)
	w.settled(1)
	w.condition(cachev1alpha1.ConditionAvailable, "True", cachev1alpha1.ReasonReady)
}

func TestDriftIsCorrected(t *testing.T) {
	w := newWorld(t)
	w.create(sample())
	w.settled(3)
	w.change(w.deployment(), `{"spec":{"replicas":1}}`)
	w.eventually("3 replicas again", func() error {
		if n := *w.deployment().Spec.Replicas; n != 3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	w.change(w.service(), `{"spec":{"selector":{"app.kubernetes.io/instance":"another"}}}`)
	w.eventually("the selector again", func() error {
		if s := w.service().Spec.Selector[cachev1alpha1.LabelInstance]; s != name {
			return fmt.Errorf("%s", s)
		}
		return nil
	})
	w.delete(w.service())
	w.delete(w.deployment())
	w.eventually("both again", func() error {
		if d := w.deployment(); w.service() == nil || d == nil || d.DeletionTimestamp != nil {
			return errors.New("not yet")
		}
		return nil
	})
	w.settled(3)
}

func TestPlainClusterLeavesNothingBehind(t *testing.T) {
	w := newWorld(t)
	w.create(sample())
	w.settled(3)
	w.delete(w.memcached())
	w.nothingLeft()
}

// nothingLeft waits until all objects of a cluster but its claims are gone.
func (w *world) nothingLeft() {
	w.Helper()
	w.eventually("nothing left", func() error {
		switch {
		case w.memcached() != nil:
			return errors.New("the Memcached is there")
		case w.deployment() != nil || w.statefulSet() != nil || w.service() != nil:
			return errors.New("a Deployment, StatefulSet or Service is there")
		case len(w.pods()) != 0:
			return errors.New("pods are there")
		case len(w.jobs()) != 0:
			return errors.New("Jobs are there")
		case w.serverList() != nil || w.budget() != nil || w.networkPolicy() != nil:
			return errors.New("a ConfigMap, PodDisruptionBudget or NetworkPolicy is there")
		}
		return nil
	})
}

func TestForeignObjectOfTheSameNameIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	foreign := &corev1.Service{Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "another"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	foreign.Name = name
	w.create(foreign)
	w.create(apitest.MakeMemcached(name).Obj())
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	equal(w, "its selector", w.service().Spec.Selector, map[string]string{"app": "another"})
	w.delete(foreign)
	w.settled(3)
}
