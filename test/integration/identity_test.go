package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// These tests are about the owner of an object (invariant 12): objects of other owners are not written, counted
// or obeyed, and the cluster's are found without their labels.

// bareClaim is a claim as a restore or another chart leaves it: without the operator's labels.
func bareClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"velero.io/restore-name": "monday"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("128Mi")},
			},
		},
	}
}

func TestClaimsThatAreThereBeforeTheirMembersAreDrainedAsAnyOther(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.create(bareClaim(claimName(i)))
	}
	w.storageCluster(apitest.MakeMemcached(name), 3)
	for i := range 3 {
		c := w.claim(i)
		equal(w, c.Name+" is the cluster's", c.Labels[cachev1alpha1.LabelCluster], name)
		equal(w, c.Name+" is held", slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer), true)
		equal(w, c.Name+" keeps its label", c.Labels["velero.io/restore-name"], "monday")
	}
	w.eventually("an event for each claim", func() error {
		seen := map[string]int{}
		for _, e := range w.events() {
			if e.Reason == "ClaimAdopted" && e.Related != nil {
				seen[e.Related.Name]++
			}
		}
		if len(seen) != 3 {
			return fmt.Errorf("%v", seen)
		}
		return nil
	})
	left := w.claim(2)
	kubes.Play(w.namespace, player.Succeed(7))
	w.scale(2)
	w.claimGone(2, left.UID)
	m := w.settled(2)
	equal(w, "the drain", m.Status.LastDrains[0].Found, int64(7))
}

// A person deletes a member's claim and restores it from a snapshot, with the same name.
func TestAClaimThatIsRestoredUnderARunningMemberIsAdopted(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	was := w.claim(1)
	w.stopOperator()
	w.annotate(1, cachev1alpha1.DrainSkip)
	w.change(was, `{"metadata":{"finalizers":null}}`)
	w.delete(was)
	w.delete(w.pod("cache-1"))
	w.claimGone(1, was.UID)
	if w.claim(1) == nil {
		if err := admin.Create(w.Context(), inNamespace(bareClaim(claimName(1)), w.namespace)); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	} else { // the controller was faster: remove the operator's labels and finalizer
		w.annotate(1, cachev1alpha1.DrainSkip) // a finalizer may be removed only by a person's word
		w.change(w.claim(1), `{"metadata":{"labels":null,"finalizers":null}}`)
		w.change(w.claim(1), `{"metadata":{"annotations":null}}`)
	}
	w.startOperator()
	w.eventually("claim data-cache-1 adopted", func() error {
		c := w.claim(1)
		if c == nil || c.Labels[cachev1alpha1.LabelCluster] != name || !slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return fmt.Errorf("%s", asJSON(c))
		}
		return nil
	})
	w.settled(3)
}

func inNamespace(c *corev1.PersistentVolumeClaim, namespace string) *corev1.PersistentVolumeClaim {
	c.Namespace = namespace
	return c
}

func TestAClaimThatAnotherControlsKeepsMembersFromStarting(t *testing.T) {
	tier.Second(t, "TestForeignObjectOfTheSameNameIsLeftAlone")
	w := newWorld(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "database"}}
	w.create(owner)
	claim := bareClaim(claimName(1))
	claim.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true),
	}}
	w.create(claim)
	w.create(apitest.MakeMemcached(name).Storage("128Mi").Obj())
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	for _, part := range []string{"PersistentVolumeClaim data-cache-1", "ConfigMap database"} {
		if !strings.Contains(message, part) {
			t.Errorf("%q does not say %q", message, part)
		}
	}
	equal(w, "there are members", w.statefulSet() != nil, false)
	equal(w, "the claim is as it was", len(w.claim(1).Finalizers)-1, 0) // Kubernetes has a finalizer of its own
	w.change(w.claim(1), `{"metadata":{"finalizers":null}}`)
	w.delete(w.claim(1))
	w.settled(3)
}

// One claim with the operator's label, and a number that no member has, must not stop the operator for all
// clusters.
func TestAClaimOfAMemberThatCannotBeStopsNoCluster(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 1)
	claim := bareClaim("data-cache-2147483646")
	claim.Labels = w.claim(0).Labels
	claim.Finalizers = []string{"example.com/theirs"}
	w.create(claim)
	w.delete(w.serverList())
	w.settled(1)
	w.eventually("the clients' list again", func() error {
		if w.serverList() == nil {
			return errors.New("none")
		}
		return nil
	})
	w.scale(2)
	w.settled(2)
	w.scale(1)
	w.settled(1)
	equal(w, "their finalizers", slices.Contains(w.claimNamed(claim.Name).Finalizers, "example.com/theirs"), true)
	w.change(claim, `{"metadata":{"finalizers":null}}`)
}

func (w *world) claimNamed(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	return found(w, c, admin.Get(w.Context(), w.key(name), c))
}

// foreignJob is a Job that a person made from the YAML of a drain's.
func foreignJob(name string, labels, annotations map[string]string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
		Spec: batchv1.JobSpec{Suspend: ptr.To(true), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "drainer", Image: "any"}},
		}}},
	}
}

func TestAJobThatIsNotTheClustersIsIgnored(t *testing.T) {
	t.Parallel()
	for what, make := range map[string]func(w *world, labels map[string]string) *batchv1.Job{
		"labels, and no annotations": func(_ *world, labels map[string]string) *batchv1.Job {
			return foreignJob("copied", labels, nil)
		},
		"all but the owner": func(w *world, labels map[string]string) *batchv1.Job {
			return foreignJob("copied", labels, map[string]string{
				cachev1alpha1.AnnotationClaimUID: string(w.claim(2).UID), cachev1alpha1.AnnotationSurvivors: "1",
			})
		},
		"a number of members that can't be": func(w *world, labels map[string]string) *batchv1.Job {
			job := foreignJob(drainName(w.claim(2)), labels, map[string]string{
				cachev1alpha1.AnnotationClaimUID: string(w.claim(2).UID), cachev1alpha1.AnnotationSurvivors: "-2147483648",
			})
			job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.memcached(), cachev1alpha1.GroupVersion.WithKind("Memcached"))}
			return job
		},
	} {
		t.Run(what, func(t *testing.T) {
			if what != "all but the owner" {
				tier.Second(t, "TestAJobThatIsNotTheClustersIsIgnored")
			}
			w := newWorld(t)
			w.storageCluster(apitest.MakeMemcached(name), 3)
			labels := map[string]string{}
			for k, v := range w.claim(2).Labels {
				labels[k] = v
			}
			labels[cachev1alpha1.LabelComponent] = cachev1alpha1.ComponentDrainer
			w.create(make(w, labels))
			w.always("three members, and no drain", func() error {
				if n := len(w.memcached().Status.Drains); n != 0 {
					return fmt.Errorf("%d drains", n)
				}
				return w.replicasAre(3)
			})
			equal(w, "Jobs", len(w.jobs()), 1)
		})
	}
}

// drainName returns the name of the Job of the claim's drain.
func drainName(c *corev1.PersistentVolumeClaim) string { return jobName(c, "drain", string(c.UID)) }

// moveName returns the name of the Job that moves the items of the claim's member.
func moveName(c *corev1.PersistentVolumeClaim, target string) string {
	return jobName(c, "move", fmt.Sprintf("move/%s/%s", c.UID, target))
}

func jobName(c *corev1.PersistentVolumeClaim, what, of string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(of))
	return fmt.Sprintf("%s-%s-%08x", c.Name, what, h.Sum32())
}

func TestAJobThatHasADrainsNameIsNamedInStatus(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	left := w.claim(2)
	foreign := foreignJob(drainName(left), nil, nil)
	w.create(foreign)
	w.scale(2)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	if !strings.Contains(message, "Job "+foreign.Name) {
		t.Errorf("%q does not name Job %s", message, foreign.Name)
	}
	equal(w, "the claim is there", w.claim(2) != nil, true)
	w.delete(foreign)
	w.claimGone(2, left.UID)
	w.settled(2)
}

// Only a receipt from a pod of this Job counts.
func TestAReceiptOfAForgedPodLetsNothingGo(t *testing.T) {
	w := newWorld(t)
	left := w.hangingDrain(apitest.MakeMemcached(name))
	job := w.jobOf(left.UID)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: job.Spec.Template.Labels, Annotations: job.Annotations},
		Spec:       corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{Name: "drainer", Image: "any"}}},
	}
	pod.Labels[batchv1.JobNameLabel] = job.Name
	delete(pod.Labels, batchv1.ControllerUidLabel) // by this label, Kubernetes would take the pod for the Job's
	w.create(pod)
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "drainer", Image: "any", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: player.Message(player.Receipt(player.Drainer{SourceID: string(left.UID)}, 1))},
	}}}
	if err := admin.Status().Patch(t.Context(), pod, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.always("the claim has no receipt", func() error {
		if c := w.claim(2); c == nil || c.Annotations[cachev1alpha1.AnnotationReceipt] != "" {
			return fmt.Errorf("%s", asJSON(c))
		}
		return nil
	})
	kubes.Play(w.namespace, player.Succeed(5))
	w.claimGone(2, left.UID)
	equal(w, "the drain", w.settled(2).Status.LastDrains[0].Found, int64(5))
}

// clusterObjects returns all objects of the cluster but its pods.
func (w *world) clusterObjects() []client.Object {
	w.Helper()
	var out []client.Object
	for _, list := range []client.ObjectList{
		&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &policyv1.PodDisruptionBudgetList{},
		&corev1.PersistentVolumeClaimList{}, &batchv1.JobList{},
	} {
		w.list(list)
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if o := o.(client.Object); o.GetName() != "kube-root-ca.crt" {
				out = append(out, o)
			}
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	return out
}

// unlabel removes the label by which the operator's cache knows the cluster's objects.
func (w *world) unlabel() {
	w.Helper()
	for _, o := range w.clusterObjects() {
		w.change(o, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, cachev1alpha1.LabelCluster))
	}
}

func TestALabelThatIsTakenOffIsPutBack(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	was, before := w.members(), uids(w.claims())
	w.unlabel()
	w.eventually("all labels again", func() error {
		for _, o := range w.clusterObjects() {
			if o.GetLabels()[cachev1alpha1.LabelCluster] != name {
				return fmt.Errorf("%T %s has none", o, o.GetName())
			}
		}
		return nil
	})
	w.settled(3)
	equal(w, "claims", uids(w.claims()), before)
	equal(w, "members", w.members(), was)
}

// A drain starts even if other tools have rewritten the claim's labels.
func TestAClaimWhoseLabelsWereRewrittenIsDrained(t *testing.T) {
	tier.Second(t, "TestADepartedClaimThatLosesItsLabelIsDrained")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	left := w.claim(2)
	w.change(left, fmt.Sprintf(`{"metadata":{"labels":{%q:"x",%q:"another",%q:"Helm",%q:"elsewhere"}}}`,
		cachev1alpha1.LabelComponent, cachev1alpha1.LabelInstance, cachev1alpha1.LabelManagedBy, cachev1alpha1.LabelCluster))
	w.scale(2)
	w.claimGone(2, left.UID)
	w.settled(2)
}

func TestAStatefulSetThatWasCopiedIsNotTakenOver(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 1)
	original := w.statefulSet()
	copied := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: original.Labels}, Spec: *original.Spec.DeepCopy()}
	copied.Spec.Replicas = ptr.To[int32](0)
	w.create(copied)
	other := apitest.MakeMemcached("other").Size(2).Storage("128Mi").Obj()
	w.create(other)
	w.eventually("Degraded, because the name is taken", func() error {
		for _, m := range w.clusters() {
			for _, c := range m.Status.Conditions {
				if m.Name == "other" && c.Type == cachev1alpha1.ConditionDegraded && c.Reason == cachev1alpha1.ReasonNameTaken {
					return nil
				}
			}
		}
		return errors.New("not yet")
	})
	w.delete(other)
	w.eventually("the Memcached gone", func() error {
		if n := len(w.clusters()); n != 1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	for _, s := range w.statefulSets() {
		if s.Name == "other" && (s.UID != copied.UID || s.Generation != copied.Generation || s.DeletionTimestamp != nil) {
			t.Errorf("the copy was touched: %s", asJSON(s.ObjectMeta))
		}
	}
	equal(w, "StatefulSets", len(w.statefulSets()), 2)
}

// A list that is restored from a backup is older than the ring that the claims name.
func TestAListOlderThanTheClaimsIsNotTrusted(t *testing.T) {
	tier.Second(t, "TestRecordIsBelievedWhereItCanBeTrue")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	old := w.serverList()
	w.scale(3)
	w.settled(3)
	equal(w, "the claims have the ring", w.claim(0).Annotations[cachev1alpha1.AnnotationMoved] != "", true)
	w.stopOperator()
	w.change(w.serverList(), asJSON(map[string]any{
		"data":     old.Data,
		"metadata": map[string]any{"annotations": map[string]string{cachev1alpha1.AnnotationRing: old.Annotations[cachev1alpha1.AnnotationRing]}},
	}))
	moved := map[types.UID]bool{}
	var seen cast
	kubes.Play(w.namespace, seen.script)
	w.startOperator()
	w.eventually("members looked through", func() error {
		for _, what := range seen.take() {
			moved[types.UID(what)] = true
		}
		if len(moved) < 2 {
			return fmt.Errorf("%v", moved)
		}
		return nil
	})
	w.settled(3)
	equal(w, "the list", w.listed(), w.ring(3))
}

// A claim may have a ring that the list doesn't have: the claim is from a backup, or a person annotated it.
// Items are moved by the next ring, which is in the list.
func TestAClaimOfALaterRingIsFollowedByANextOne(t *testing.T) {
	tier.Second(t, "TestLastRingIsNoneThatIsTooFarAway")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	w.scale(3)
	w.settled(3)
	serial := func() (record struct{ Serial int64 }) {
		if err := json.Unmarshal([]byte(w.serverList().Annotations[cachev1alpha1.AnnotationRing]), &record); err != nil {
			t.Fatal(err)
		}
		return record
	}
	later := serial().Serial + 1
	w.change(w.claim(0), fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, cachev1alpha1.AnnotationMoved, later))
	w.eventually("the list has the next ring, by which all are moved", func() error {
		for i := range 3 {
			if by := w.claim(i).Annotations[cachev1alpha1.AnnotationMoved]; serial().Serial <= later || by != strconv.FormatInt(serial().Serial, 10) {
				return fmt.Errorf("the list tells of ring %d, member %d is moved by %s", serial().Serial, i, by)
			}
		}
		return nil
	})
	w.settled(3)
}

// If a label was removed, and the API server refuses to restore it, the cluster waits, and status quotes the
// API server.
func TestALabelThatCannotBePutBackShows(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	w.stopOperator()
	w.change(w.serverList(), fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, cachev1alpha1.LabelCluster))
	allow := w.deny("configmaps", "no client may change the list today")
	w.startOperator()
	w.scale(1)
	w.eventually("status quotes the refusal", func() error {
		degraded := meta.FindStatusCondition(w.memcached().Status.Conditions, cachev1alpha1.ConditionDegraded)
		if degraded == nil || degraded.Status != "True" || !strings.Contains(degraded.Message, "no client may change the list today") {
			return errors.New(asJSON(degraded))
		}
		return nil
	})
	equal(w, "pods", len(w.pods()), 2)
	allow()
	w.settled(1)
}

// deny makes the API server refuse, with this message, every change of the namespace's objects of that kind,
// until allow.
func (w *world) deny(resource, words string) (allow func()) {
	w.Helper()
	probe := w.serverList()
	return w.denyAs(admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"v1"}, Resources: []string{resource}},
	}, words, func() error {
		return admin.Patch(w.Context(), probe.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"probe":"a"}}}`)), client.DryRunAll)
	})
}

// denyAs makes the API server refuse, with this message, the rule's requests in the namespace, until allow.
// probe makes such a request, which changes nothing.
func (w *world) denyAs(rule admissionv1.RuleWithOperations, words string, probe func() error) (allow func()) {
	w.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny-" + w.namespace}}
	policy.Spec = admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace}},
			ResourceRules:     []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
		},
		Validations: []admissionv1.Validation{{Expression: "false", Message: words}},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = policy.Name, []admissionv1.ValidationAction{admissionv1.Deny}
	if err := errors.Join(admin.Create(w.Context(), policy), admin.Create(w.Context(), binding)); err != nil {
		w.Fatal(err)
	}
	w.eventually("the policy in force", func() error {
		if err := probe(); err == nil {
			return errors.New("it is allowed")
		}
		return nil
	})
	return func() {
		if err := errors.Join(admin.Delete(w.Context(), binding), admin.Delete(w.Context(), policy)); err != nil {
			w.Fatal(err)
		}
	}
}
