package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// uninstallation is one by the chart's hook, of a release in the world's namespace.
type uninstallation struct {
	*world
	options controllers.UninstallOptions
	said    *lockedBuffer
	looked  atomic.Int64 // how many lists it has read
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newUninstallation gives the hook's service account the chart's rights, and creates the operator's Deployment.
// The world's operator ends when the Deployment is scaled to zero.
func newUninstallation(w *world, set ...string) *uninstallation {
	w.Helper()
	w.byHand = true
	release := "memcached-operator-" + w.namespace
	args := []string{"--release=" + release, "--namespace=" + w.namespace, "--hook=pre-delete"}
	for _, s := range set {
		args = append(args, "--set="+s)
	}
	repository := filepath.Join("..", "..")
	chart := filepath.Join(repository, "bin", "chart")
	_, err := os.Stat(chart)
	tier.Needs(w, "what `make bin/chart` builds", err)
	rendered, err := exec.CommandContext(w.Context(), chart, append(args, filepath.Join(repository, "charts", "memcached-operator"))...).CombinedOutput()
	if err != nil {
		w.Fatalf("render the hook: %v: %s", err, rendered)
	}
	for document := range strings.SplitSeq("\n"+string(rendered), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			w.Fatal(err)
		}
		if object.Object == nil || object.GetKind() == "Job" || object.GetKind() == "ServiceAccount" {
			continue
		}
		if err := admin.Create(w.Context(), object); err != nil {
			w.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	user := fmt.Sprintf("system:serviceaccount:%s:%s-uninstall", w.namespace, release)
	c, err := client.New(asUser(user), client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		w.Fatal(err)
	}
	u := &uninstallation{world: w, said: &lockedBuffer{}}
	u.options = controllers.UninstallOptions{
		Client: hands{c, u}, Namespaces: []string{w.namespace}, Timeout: 2 * time.Second, Interval: 50 * time.Millisecond, Out: u.said,
		Deployment: client.ObjectKey{Namespace: w.namespace, Name: release + "-manager"},
	}
	u.deploy()
	return u
}

// deploy creates the Deployment.
func (u *uninstallation) deploy() {
	u.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "memcached-operator"}
	d := &appsv1.Deployment{}
	d.Name = u.options.Deployment.Name
	d.Spec.Replicas = ptr.To[int32](1)
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "any"}}
	u.create(d)
}

// hands is the uninstallation's client. hands ends the operator when the Deployment is scaled to zero.
type hands struct {
	client.Client
	u *uninstallation
}

func (h hands) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	err := h.Client.Patch(ctx, o, patch, options...)
	if _, is := o.(*appsv1.Deployment); is && err == nil {
		h.u.stopOperator()
	}
	return err
}

func (h hands) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	h.u.looked.Add(1)
	return h.Client.List(ctx, list, options...)
}

func (u *uninstallation) run() {
	u.Helper()
	if err := controllers.Uninstall(u.Context(), u.options); err != nil {
		u.Fatalf("%v\n%s\n%s", err, u.said, u.picture())
	}
}

// noFinalizers fails if an object of the namespace has one of the operator's finalizers.
func (u *uninstallation) noFinalizers() {
	u.Helper()
	const ours = "cache.example.com/"
	for _, m := range u.clusters() {
		if strings.Contains(strings.Join(m.Finalizers, " "), ours) {
			u.Errorf("Memcached %s has finalizers %v\n%s", m.Name, m.Finalizers, u.said)
		}
	}
	for _, c := range u.claims() {
		if strings.Contains(strings.Join(c.Finalizers, " "), ours) {
			u.Errorf("claim %s has finalizers %v\n%s", c.Name, c.Finalizers, u.said)
		}
	}
	for _, j := range u.jobs() {
		if strings.Contains(strings.Join(j.Finalizers, " "), ours) {
			u.Errorf("Job %s has finalizers %v", j.Name, j.Finalizers)
		}
	}
}

func TestUninstallWaitsForADrainToEnd(t *testing.T) {
	tier.Second(t, "TestUninstallLeavesNoFinalizerAndEveryItem")
	w := newWorld(t)
	u := newUninstallation(w)
	u.options.Timeout = wait.Long
	claim := w.hangingDrain(apitest.MakeMemcached(name))
	done := make(chan error, 1)
	go func() { done <- controllers.Uninstall(t.Context(), u.options) }()
	w.eventually("several looks at the drain", func() error {
		if n := u.looked.Load(); n < 10 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	equal(w, "replicas of the operator, which is left to its work", *u.deployment().Spec.Replicas, int32(1))
	kubes.Play(w.namespace, player.Succeed(12))
	if err := <-done; err != nil {
		t.Fatalf("%v\n%s", err, u.said)
	}
	u.noFinalizers()
	if c := w.claim(2); c != nil && c.UID == claim.UID && c.DeletionTimestamp == nil {
		t.Errorf("claim %s was drained, and is there: %s", c.Name, asJSON(c))
	}
	if w.memcached() == nil || len(w.claims()) < 2 || w.statefulSet() == nil {
		t.Errorf("the cluster is gone\n%s", w.picture())
	}
}

// deployment returns the operator's.
func (u *uninstallation) deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{}
	return found(u.world, d, admin.Get(u.Context(), u.options.Deployment, d))
}

func TestUninstallLeavesNoFinalizerAndEveryItem(t *testing.T) {
	t.Parallel()
	for _, clusters := range []string{"Keep", "Delete"} {
		for _, dead := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, operator dead %v", clusters, dead), func(t *testing.T) {
				if dead == (clusters == "Delete") {
					tier.Second(t, "TestUninstallLeavesNoFinalizerAndEveryItem")
				}
				w := newWorld(t)
				u := newUninstallation(w, "uninstall.memcacheds="+clusters)
				u.options.DeleteClusters = clusters == "Delete"
				claim := w.hangingDrain(apitest.MakeMemcached(name))
				before := uids(w.claims())
				if dead {
					w.stopOperator()
					// The claim can't be found by a label any more.
					w.change(w.claim(1), `{"metadata":{"labels":null}}`)
				}
				u.run()
				u.noFinalizers()
				equal(w, "claims", uids(w.claims()), before)
				if c := w.claim(2); c == nil || c.UID != claim.UID || c.DeletionTimestamp != nil {
					t.Errorf("the claim whose drain was under way: %s", asJSON(c))
				}
				if clusters == "Delete" {
					w.nothingLeft()
				} else if w.memcached() == nil || w.memcached().DeletionTimestamp != nil || len(w.pods()) == 0 {
					t.Errorf("the cluster is gone\n%s", w.picture())
				}
				u.run() // once more: nothing to do, no failure
			})
		}
	}
}

func TestUninstallWithoutADeployment(t *testing.T) {
	tier.Second(t, "TestUninstallLeavesNoFinalizerAndEveryItem")
	w := newWorld(t)
	u := newUninstallation(w, "namespaced=true", "uninstall.memcacheds=Delete")
	u.options.DeleteClusters = true
	w.storageCluster(apitest.MakeMemcached(name), 2)
	w.stopOperator()
	w.delete(u.deployment())
	u.run()
	u.noFinalizers()
	w.nothingLeft()
	equal(w, "claims", len(w.claims()), 2)
}

func TestAVolumeOutlivesItsClaimThatWasDeletedBeforeItsDrain(t *testing.T) {
	w := newWorld(t)
	u := newUninstallation(w)
	claim := w.hangingDrain(apitest.MakeMemcached(name))
	w.stopOperator()
	w.delete(claim)
	kubes.Play(w.namespace, player.Fail(1, "Unreachable", "no answer"))
	u.run()
	u.noFinalizers()
	v := w.volumeOf(claim)
	if v == nil || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("the volume: %s\n%s", asJSON(v), u.said)
	}
}

func TestAnOperatorThatComesBackHoldsWhatItLeft(t *testing.T) {
	tier.Second(t, "TestCrashPoints")
	w := newWorld(t)
	u := newUninstallation(w)
	claim := w.hangingDrain(apitest.MakeMemcached(name))
	u.run()
	u.noFinalizers()
	kubes.Play(w.namespace, player.Succeed(12))
	w.startOperator()
	w.claimGone(2, claim.UID)
	w.eventually("every claim held", func() error {
		for _, c := range w.claims() {
			if !slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
				return fmt.Errorf("claim %s has %s", c.Name, asJSON(c.Finalizers))
			}
		}
		return nil
	})
	w.settled(2)
}

// If the operator's own namespace is deleted with clusters in it, the operator may end before the clusters do.
// Finalizers stay until a person runs the uninstallation from elsewhere.
func TestANamespaceThatIsDeletedWithItsOperatorGoesByAnUninstall(t *testing.T) {
	w := newWorld(t)
	w.byHand = true
	w.storageCluster(apitest.MakeMemcached(name), 2)
	w.stopOperator()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if err := admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	w.eventually("only finalizers keep the namespace", func() error {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil {
			return err
		}
		for _, c := range namespace.Status.Conditions {
			if c.Type == corev1.NamespaceFinalizersRemaining && strings.Contains(c.Message, cachev1alpha1.ClaimFinalizer) &&
				strings.Contains(c.Message, cachev1alpha1.OwnerFinalizer) {
				return nil
			}
		}
		return fmt.Errorf("%s", asJSON(namespace.Status))
	})
	said := &lockedBuffer{}
	if err := controllers.Uninstall(t.Context(), controllers.UninstallOptions{
		Client: admin, Namespaces: []string{w.namespace}, Timeout: time.Second, Interval: 50 * time.Millisecond, Out: said,
	}); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	w.eventually("the namespace gone", func() error {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s %w", asJSON(namespace.Status), err)
	})
}
