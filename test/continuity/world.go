package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/internal/harness"
)

const (
	clusterName = "cache"
	port        = 11211
)

// world is a namespace of the cluster.
type world struct {
	*options
	kube      client.WithWatch
	namespace string
	// told is how many servers of a plain StatefulSet the application was told of.
	told atomic.Int32
}

func newWorld(ctx context.Context, o *options) (*world, error) {
	kube, _, err := deployed.Connect(ctx, "bench-continuity")
	if err != nil {
		return nil, err
	}
	namespace, err := deployed.MakeNamespace(ctx, kube, "continuity-")
	return &world{options: o, kube: kube, namespace: namespace}, err
}

func (w *world) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return deployed.RemoveNamespace(ctx, w.kube, w.namespace)
}

func (w *world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace, Name: name}
}

func member(ordinal int32) string { return fmt.Sprintf("%s-%d", clusterName, ordinal) }

// addresses returns those of the pods and of the routers' Service, by name.
func (w *world) addresses(ctx context.Context) (map[string]net.Addr, error) {
	var pods corev1.PodList
	if err := w.kube.List(ctx, &pods, client.InNamespace(w.namespace)); err != nil {
		return nil, err
	}
	addresses := map[string]net.Addr{}
	for i := range pods.Items {
		if ip := net.ParseIP(pods.Items[i].Status.PodIP); ip != nil {
			addresses[pods.Items[i].Name] = &net.TCPAddr{IP: ip, Port: port}
		}
	}
	var routers corev1.Service
	switch err := w.kube.Get(ctx, w.key(clusterName+"-router"), &routers); {
	case err == nil:
		addresses[clusterName+"-router"] = &net.TCPAddr{IP: net.ParseIP(routers.Spec.ClusterIP), Port: port}
	case client.IgnoreNotFound(err) != nil:
		return nil, err
	}
	return addresses, nil
}

// ready returns how many members are ready, from the first on, without a gap.
func (w *world) ready(ctx context.Context) (n int32, err error) {
	for ; ; n++ {
		var pod corev1.Pod
		err := w.kube.Get(ctx, w.key(member(n)), &pod)
		if client.IgnoreNotFound(err) != nil {
			return n, err
		}
		if err != nil || !podReady(&pod) {
			return n, nil
		}
	}
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// system is something that runs a cluster.
type system struct {
	name string
	// plain is set for a StatefulSet without an operator, and routed if the application asks routers. patience,
	// moves and rollout are those of the operator's cluster.
	plain    bool
	routed   bool
	patience time.Duration
	moves    cachev1alpha1.MoveMode
	rollout  cachev1alpha1.Rollout
	// evictions is the setting of the cluster's budget.
	evictions cachev1alpha1.Evictions
	// inPods: the members have no volumes.
	inPods bool
}

func (s system) called() string { return s.name }

func systems() []system {
	return []system{
		{name: "plain StatefulSet", plain: true},
		{name: "operator without live moves", moves: cachev1alpha1.MovesOff},
		{name: "operator", patience: 90 * time.Second, moves: cachev1alpha1.MovesLive},
		{name: "operator with routers", patience: 90 * time.Second, moves: cachev1alpha1.MovesLive, routed: true, rollout: cachev1alpha1.RolloutRestart},
		{name: "operator with routers and Moved", patience: 90 * time.Second, moves: cachev1alpha1.MovesLive, routed: true, rollout: cachev1alpha1.RolloutMoved, evictions: cachev1alpha1.EvictionsStepOut},
		{name: "Memory", patience: 90 * time.Second, moves: cachev1alpha1.MovesLive, inPods: true},
		{name: "Memory with routers", patience: 90 * time.Second, moves: cachev1alpha1.MovesLive, routed: true, rollout: cachev1alpha1.RolloutMoved, evictions: cachev1alpha1.EvictionsStepOut, inPods: true},
	}
}

// create makes the cluster, and waits for it.
func (s *system) create(ctx context.Context, w *world, size int32) error {
	w.told.Store(size)
	var err error
	if s.plain {
		err = w.createPlain(ctx, size)
	} else {
		mc := &cachev1alpha1.Memcached{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: clusterName},
			Spec: cachev1alpha1.MemcachedSpec{
				Size: ptr.To(size), Memory: ptr.To(resource.MustParse("64Mi")),
				Storage: &cachev1alpha1.StorageSpec{Size: resource.MustParse("256Mi")},
				Rollout: s.rollout, PodDisruptionBudget: cachev1alpha1.PodDisruptionBudgetSpec{Evictions: s.evictions},
				Routing: cachev1alpha1.RoutingSpec{Client: ringClient, Moves: s.moves, Patience: &metav1.Duration{Duration: s.patience}},
			},
		}
		if s.inPods {
			mc.Spec.Storage = &cachev1alpha1.StorageSpec{Mode: cachev1alpha1.StorageMemory}
		}
		if s.routed {
			mc.Spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2), Exclusive: true}
		}
		err = w.kube.Create(ctx, mc)
	}
	if err != nil {
		return err
	}
	return s.settle(ctx, w)
}

func (w *world) createPlain(ctx context.Context, size int32) error {
	labels := map[string]string{"app": clusterName}
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: clusterName}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: labels, Ports: []corev1.ServicePort{{Port: port}},
	}}
	set := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
		ServiceName: clusterName, Replicas: &size, PodManagementPolicy: appsv1.ParallelPodManagement,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](11211), FSGroup: ptr.To[int64](11211)},
				Containers: []corev1.Container{{
					Name: "memcached", Image: w.image, Command: plainCommand(64),
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}, PeriodSeconds: 1},
					VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}},
			},
		},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("256Mi")}},
			},
		}},
	}}
	return errors.Join(w.kube.Create(ctx, service), w.kube.Create(ctx, set))
}

// plainCommand runs memcached with a warm file on the volume. memcached doesn't save the file on SIGTERM.
func plainCommand(megabytes int) []string {
	return []string{"memcached", "-m", strconv.Itoa(megabytes), "-e", "/data/warm"}
}

// list returns the servers that applications are told of.
func (s *system) list(ctx context.Context, w *world) (servers []string, err error) {
	if s.plain {
		for i := range w.told.Load() {
			servers = append(servers, fmt.Sprintf("%s.%s.%s.svc:%d", member(i), clusterName, w.namespace, port))
		}
		return servers, nil
	}
	if s.routed {
		return []string{fmt.Sprintf("%s-router.%s.svc:%d", clusterName, w.namespace, port)}, nil
	}
	var list corev1.ConfigMap
	if err := w.kube.Get(ctx, w.key(clusterName+"-servers"), &list); err != nil {
		return nil, err
	}
	err = json.Unmarshal([]byte(list.Data["servers.json"]), &servers)
	return servers, err
}

// settle waits until the cluster is as wanted.
func (s *system) settle(ctx context.Context, w *world) error {
	return deployed.Until(ctx, "the cluster is as wanted", func() error {
		if s.plain {
			var set appsv1.StatefulSet
			if err := w.kube.Get(ctx, w.key(clusterName), &set); err != nil {
				return err
			}
			st := &set.Status
			return unless(st.ObservedGeneration == set.Generation && st.Replicas == *set.Spec.Replicas && st.ReadyReplicas == st.Replicas && st.UpdatedReplicas == st.Replicas,
				"the StatefulSet has %d of %d members ready", st.ReadyReplicas, *set.Spec.Replicas)
		}
		mc := &cachev1alpha1.Memcached{}
		if err := w.kube.Get(ctx, w.key(clusterName), mc); err != nil {
			return err
		}
		st := &mc.Status
		return unless(st.ObservedGeneration == mc.Generation && meta.IsStatusConditionTrue(st.Conditions, cachev1alpha1.ConditionReady),
			"the cluster is %s", st.Phase)
	})
}

func unless(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// happening is an event of a cluster.
type happening struct {
	name string
	// members is how many there are before it.
	members     int32
	changesList bool
	happen      func(ctx context.Context, w *world, s *system) error
}

func (h happening) called() string { return h.name }

func events() []happening {
	return []happening{
		{"3 to 2", 3, true, func(ctx context.Context, w *world, s *system) error { return s.scale(ctx, w, 2) }},
		{"2 to 3", 2, true, func(ctx context.Context, w *world, s *system) error { return s.scale(ctx, w, 3) }},
		{"another memory", 3, false, func(ctx context.Context, w *world, s *system) error { return s.resize(ctx, w) }},
		{"another image", 3, false, func(ctx context.Context, w *world, s *system) error { return s.reimage(ctx, w) }},
		{"SIGKILL", 3, false, func(ctx context.Context, w *world, _ *system) error { return w.kill(ctx, 1) }},
		{"pod lost", 3, false, func(ctx context.Context, w *world, _ *system) error { return w.losePod(ctx, 1) }},
		{"node drained", 3, false, func(ctx context.Context, w *world, _ *system) error { return w.drainNode(ctx, 1) }},
		// This one tells what the others' latencies owe to a machine that runs all of it.
		{"unrelated pod starts", 3, false, func(ctx context.Context, w *world, _ *system) error { return w.startAnother(ctx) }},
	}
}

// startAnother starts a pod that has nothing to do with the cluster, and waits until it runs.
func (w *world) startAnother(ctx context.Context) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "another"}, Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](11211)},
		Containers:      []corev1.Container{{Name: "memcached", Image: w.image, Command: []string{"memcached", "-m", "64"}}},
	}}
	if err := w.kube.Create(ctx, pod); err != nil {
		return err
	}
	return deployed.Until(ctx, "the other pod is ready", func() error {
		err := w.kube.Get(ctx, w.key(pod.Name), pod)
		return errors.Join(err, unless(podReady(pod), "pod %s is %s", pod.Name, pod.Status.Phase))
	})
}

// scale scales the cluster. An application of a plain StatefulSet is told of fewer members at once, and of more
// when they are ready.
func (s *system) scale(ctx context.Context, w *world, size int32) error {
	if !s.plain {
		return w.patch(ctx, &cachev1alpha1.Memcached{}, fmt.Sprintf(`{"spec":{"size":%d}}`, size))
	}
	if size < w.told.Load() {
		w.told.Store(size)
	}
	if err := w.patch(ctx, &appsv1.StatefulSet{}, fmt.Sprintf(`{"spec":{"replicas":%d}}`, size)); err != nil {
		return err
	}
	err := deployed.Until(ctx, "the members are ready", func() error {
		n, err := w.ready(ctx)
		return errors.Join(err, unless(n >= size, "%d of %d are ready", n, size))
	})
	w.told.Store(size)
	return err
}

// reimage gives each member the same image by another name, so that it restarts.
func (s *system) reimage(ctx context.Context, w *world) error {
	const renamed = "example.com/memcached:again"
	if !s.plain {
		return w.patch(ctx, &cachev1alpha1.Memcached{}, fmt.Sprintf(`{"spec":{"image":%q}}`, renamed))
	}
	return w.patch(ctx, &appsv1.StatefulSet{}, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"memcached","image":%q}]}}}}`, renamed))
}

// resize gives each member another memory, so that it restarts.
func (s *system) resize(ctx context.Context, w *world) error {
	if !s.plain {
		return w.patch(ctx, &cachev1alpha1.Memcached{}, `{"spec":{"memory":"96Mi"}}`)
	}
	command, err := json.Marshal(plainCommand(96))
	if err != nil {
		return err
	}
	return w.patch(ctx, &appsv1.StatefulSet{}, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"memcached","command":%s}]}}}}`, command))
}

// patch patches the object with the cluster's name.
func (w *world) patch(ctx context.Context, o client.Object, patch string) error {
	o.SetNamespace(w.namespace)
	o.SetName(clusterName)
	if _, ours := o.(*cachev1alpha1.Memcached); ours {
		return w.kube.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	return w.kube.Patch(ctx, o, client.RawPatch("application/strategic-merge-patch+json", []byte(patch)))
}

// kill kills the member's processes.
func (w *world) kill(ctx context.Context, ordinal int32) error {
	var pod corev1.Pod
	if err := w.kube.Get(ctx, w.key(member(ordinal)), &pod); err != nil {
		return err
	}
	killed := 0
	for _, program := range []string{"drainer", "memcached"} {
		pids, err := deployed.ProcessesOf(pod.UID, program)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := deployed.Signal(pid, syscall.SIGKILL); err != nil {
				return err
			}
			killed++
		}
	}
	return unless(killed > 0, "pod %s has no process", pod.Name)
}

// losePod deletes the member's pod at once, as it goes with its node.
func (w *world) losePod(ctx context.Context, ordinal int32) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: member(ordinal)}}
	return w.kube.Delete(ctx, pod, client.GracePeriodSeconds(0))
}

// drainNode acts as kubectl drain: it evicts each pod on the node, and tries those again that a budget
// protects. After fifteen seconds, and when a member has left, the node takes pods again, because the volumes
// are on it: a second member would wait for the first.
func (w *world) drainNode(ctx context.Context, ordinal int32) (err error) {
	const away, pause, most = 15 * time.Second, time.Second, 5 * time.Minute
	var pod corev1.Pod
	if err := w.kube.Get(ctx, w.key(member(ordinal)), &pod); err != nil {
		return err
	}
	name := pod.Spec.NodeName
	if err := w.cordon(ctx, name, true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.cordon(context.WithoutCancel(ctx), name, false)) }()
	began := time.Now()
	for gone := false; !gone || time.Since(began) < away; {
		if time.Since(began) > most {
			return fmt.Errorf("after %s no member has left node %s", most, name)
		}
		var pods corev1.PodList
		if err := w.kube.List(ctx, &pods, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for i := range pods.Items {
			evicted, err := w.evict(ctx, &pods.Items[i], name)
			if err != nil {
				return err
			}
			gone = gone || evicted && slices.Contains([]string{member(0), member(1), member(2)}, pods.Items[i].Name)
		}
		if err := harness.Sleep(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

// evict evicts a pod that is on the node, unless its budget forbids it.
func (w *world) evict(ctx context.Context, pod *corev1.Pod, from string) (evicted bool, err error) {
	over := pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if over || pod.Spec.NodeName != from {
		return false, nil
	}
	err = w.kube.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: pod.Name}})
	if apierrors.IsTooManyRequests(err) {
		return false, nil
	}
	return err == nil, client.IgnoreNotFound(err)
}

func (w *world) cordon(ctx context.Context, name string, on bool) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return w.kube.Patch(ctx, n, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, on)))
}
