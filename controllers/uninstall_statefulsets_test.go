package controllers

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// drainFor is a StatefulSetDrain that an operator has worked on. Its UID has its name.
func drainFor(name string) *cachev1alpha1.StatefulSetDrain {
	return &cachev1alpha1.StatefulSetDrain{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Finalizers: []string{cachev1alpha1.OwnerFinalizer}},
		Spec:       cachev1alpha1.StatefulSetDrainSpec{StatefulSetName: name},
	}
}

// protected is a claim that this StatefulSetDrain protects.
func protected(name, by string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Finalizers: []string{cachev1alpha1.ClaimFinalizer},
		Labels:      map[string]string{cachev1alpha1.LabelStatefulSetDrain: by},
		Annotations: map[string]string{cachev1alpha1.AnnotationProtected: "uid-" + by},
	}}
}

func deleted[T client.Object](o T) T {
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	return o
}

// uninstalled uninstalls, while no operator works, and returns the output.
func uninstalled(t *testing.T, o UninstallOptions, objects ...client.Object) (client.Client, string) {
	t.Helper()
	said := &bytes.Buffer{}
	c := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(objects...).Build()
	o.Client, o.Timeout, o.Interval, o.Out = c, time.Millisecond, time.Millisecond, said
	if err := Uninstall(t.Context(), o); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return c, said.String()
}

func TestUninstallLeavesNoFinalizerOnStatefulSetDrains(t *testing.T) {
	for _, deletes := range []bool{false, true} {
		c, said := uninstalled(t, UninstallOptions{DeleteClusters: deletes}, drainFor("queue"), protected("data-queue-0", "queue"), deleted(drainFor("spool")))
		var drains cachev1alpha1.StatefulSetDrainList
		if err := c.List(t.Context(), &drains); err != nil {
			t.Fatal(err)
		}
		for i := range drains.Items {
			if d := &drains.Items[i]; deletes || d.Name != "queue" || len(d.Finalizers) > 0 {
				t.Errorf("deletes=%t: StatefulSetDrain %s is there, with finalizers %v", deletes, d.Name, d.Finalizers)
			}
		}
		if !deletes && len(drains.Items) != 1 {
			t.Errorf("StatefulSetDrain queue is gone")
		}
		claim := &corev1.PersistentVolumeClaim{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "data-queue-0"}, claim); err != nil || len(claim.Finalizers) > 0 {
			t.Errorf("its claim: %v, finalizers %v", err, claim.Finalizers)
		}
		if !strings.Contains(said, "has not finished within 1ms: StatefulSetDrain shop/spool") && !deletes ||
			!strings.Contains(said, "has not finished within 1ms: StatefulSetDrain shop/queue, StatefulSetDrain shop/spool, claim shop/data-queue-0") && deletes {
			t.Errorf("deletes=%t: it doesn't wait for those that are being deleted:\n%s", deletes, said)
		}
	}
}

// Otherwise, the volume of a claim that was drained would stay for ever.
func TestTheReceiptOfAStatefulSetDrainCountsForAllClaimsOfItsMember(t *testing.T) {
	const good, bad = `{"claims":"uid-data-queue-2,uid-logs-queue-2","rule":"receipt.left == 0","message":"{\"left\":0}"}`,
		`{"claims":"uid-data-queue-2,uid-logs-queue-2","rule":"receipt.left == 0","message":"{\"left\":1}"}`
	for what, test := range map[string]struct {
		receipt, claim string
		want           corev1.PersistentVolumeReclaimPolicy
	}{
		"the claim that has the receipt":   {good, "data-queue-2", corev1.PersistentVolumeReclaimDelete},
		"another claim of the same member": {good, "logs-queue-2", corev1.PersistentVolumeReclaimDelete},
		"a claim of another member":        {good, "data-queue-1", corev1.PersistentVolumeReclaimRetain},
		"its rule is false":                {bad, "data-queue-2", corev1.PersistentVolumeReclaimRetain},
		"no receipt":                       {"", "data-queue-2", corev1.PersistentVolumeReclaimRetain},
	} {
		objects := []client.Object{drainFor("queue")}
		for _, name := range []string{"data-queue-1", "data-queue-2", "logs-queue-2"} {
			claim := protected(name, "queue")
			claim.Spec.VolumeName = "pv-" + name
			if name == "data-queue-2" && test.receipt != "" {
				claim.Annotations[cachev1alpha1.AnnotationReceipt] = test.receipt
			}
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
			volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			volume.Spec.ClaimRef = &corev1.ObjectReference{UID: claim.UID}
			objects = append(objects, deleted(claim), volume)
		}
		c, said := uninstalled(t, UninstallOptions{}, objects...)
		volume := &corev1.PersistentVolume{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "pv-" + test.claim}, volume); err != nil {
			t.Fatal(err)
		}
		if is := volume.Spec.PersistentVolumeReclaimPolicy; is != test.want {
			t.Errorf("%s: the reclaim policy of its volume is %s, want %s\n%s", what, is, test.want, said)
		}
	}
}

// An object of another installation keeps its claims; a claim that merely has such a name is released.
func TestTheOwnerOfAClaimDecidesWhetherUninstallReleasesIt(t *testing.T) {
	const lease = "lease"
	by := func(o client.Object, installation string) client.Object {
		o.SetAnnotations(map[string]string{cachev1alpha1.AnnotationOperator: installation})
		return o
	}
	memcached := func(name string) client.Object {
		return apitest.MakeMemcached(name).Namespace("shop").Storage("128Mi").Obj()
	}
	named := func(name string) *corev1.PersistentVolumeClaim {
		claim := protected(name, "")
		claim.Labels, claim.Annotations = nil, nil
		return claim
	}
	ours, other := "operators/"+lease, "tenant/"+lease
	for what, test := range map[string]struct {
		owners []client.Object
		claim  *corev1.PersistentVolumeClaim
		stays  bool
	}{
		"of another's StatefulSetDrain":                      {[]client.Object{by(drainFor("queue"), other)}, protected("data-queue-0", "queue"), true},
		"of our StatefulSetDrain":                            {[]client.Object{by(drainFor("queue"), ours)}, protected("data-queue-0", "queue"), false},
		"of a StatefulSetDrain of no installation":           {[]client.Object{drainFor("queue")}, protected("data-queue-0", "queue"), false},
		"of another's, not protected yet":                    {[]client.Object{by(drainFor("queue"), other)}, named("data-queue-0"), true},
		"of ours, named like another's Memcached's":          {[]client.Object{by(drainFor("queue"), ours), by(memcached("my-queue"), other)}, protected("data-my-queue-0", "queue"), false},
		"of another's, named like our Memcached's":           {[]client.Object{by(drainFor("queue"), other), by(memcached("my-queue"), ours)}, protected("data-my-queue-0", "queue"), true},
		"of our Memcached, named like another's StatefulSet": {[]client.Object{by(drainFor("queue"), other), by(memcached("my-queue"), ours)}, named("data-my-queue-0"), false},
		"of a StatefulSetDrain that is gone":                 {nil, protected("data-queue-0", "queue"), false},
	} {
		manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Name: "manager"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}}
		c, said := uninstalled(t, UninstallOptions{Lease: lease, Deployment: client.ObjectKeyFromObject(manager)}, append(slices.Clone(test.owners), test.claim, manager)...)
		claim := &corev1.PersistentVolumeClaim{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(test.claim), claim); err != nil {
			t.Fatal(err)
		}
		if stays := len(claim.Finalizers) > 0; stays != test.stays {
			t.Errorf("a claim %s keeps its finalizer: %t\n%s", what, stays, said)
		}
		for _, o := range test.owners {
			if o.GetAnnotations()[cachev1alpha1.AnnotationOperator] == other && !strings.Contains(said, " shop/"+o.GetName()+" stays") {
				t.Errorf("a claim %s: it doesn't say that %s stays:\n%s", what, o.GetName(), said)
			}
		}
	}
}

// No drain ever comes for such a claim: it is released without a wait for the operator.
func TestUninstallDoesNotWaitForClaimsThatBelongToNothing(t *testing.T) {
	for _, deletes := range []bool{false, true} {
		template := protected("data-queue-0", "queue")
		template.Labels, template.Annotations = nil, nil
		left := protected("data-spool-0", "spool")
		left.Annotations[cachev1alpha1.AnnotationLeaving] = "2026-01-01T00:00:00Z"
		for _, claim := range []*corev1.PersistentVolumeClaim{template, left} {
			c, said := uninstalled(t, UninstallOptions{DeleteClusters: deletes}, deleted(claim))
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err == nil {
				t.Errorf("claim %s has finalizers %v", claim.Name, claim.Finalizers)
			}
			if strings.Contains(said, "has not finished") {
				t.Errorf("it waits for claim %s:\n%s", claim.Name, said)
			}
		}
	}
}
