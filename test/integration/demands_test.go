package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/tier"
)

func list(pairs ...string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}

// The namespace takes only pods that meet the restricted Pod Security, and whose containers have limits and a
// size that the administrator allows. Members, routers and drainers start in that namespace.
func TestAClusterFitsIntoANamespaceThatDemandsLimitsAndRestrictedPods(t *testing.T) {
	w := newNamespace(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	patch := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`
	if err := admin.Patch(t.Context(), namespace, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "sizes"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Min: list("cpu", "100m", "memory", "128Mi"), Max: list("cpu", "2", "memory", "1Gi")},
		{Type: corev1.LimitTypePersistentVolumeClaim, Min: list("storage", "100Mi")},
	}}})
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: corev1.ResourceQuotaSpec{Hard: list(
		"requests.cpu", "8", "limits.cpu", "16", "requests.memory", "8Gi", "limits.memory", "16Gi",
		"pods", "16", "persistentvolumeclaims", "4", "requests.storage", "8Gi", "count/jobs.batch", "4", "services", "8")}}
	w.create(quota)
	// Only the API server counts a quota here. At first, all of it is free.
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{}
	for of := range quota.Spec.Hard {
		quota.Status.Used[of] = resource.MustParse("0")
	}
	if err := admin.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	w.startOperator()
	size := corev1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "128Mi"), Limits: list("cpu", "1", "memory", "256Mi")}
	w.create(apitest.MakeMemcached(name).Size(3).Storage("256Mi").With(routed).With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Resources, s.Drain.Resources, s.Router.Resources = size, size, size
		s.Metrics = &cachev1alpha1.MetricsSpec{}
	}).Obj())
	w.settled(3)
	w.scale(2)
	w.settled(2)
}

// changedByAdmission makes admission raise a request for CPU, change a label of the operator's and drop a
// field, at every write of such an object in the namespace.
func changedByAdmission(t *testing.T, namespace string) {
	t.Helper()
	mutates(t, namespace, "apps/v1", []any{"statefulsets", "deployments"}, `[
		JSONPatch{op: "add", path: "/spec/template/spec/containers/0/resources/requests/cpu", value: "250m"},
		JSONPatch{op: "add", path: "/metadata/labels/app.kubernetes.io~1managed-by", value: "platform"}
		] + (has(object.spec.template.spec.topologySpreadConstraints) ? [JSONPatch{op: "remove", path: "/spec/template/spec/topologySpreadConstraints"}] : [])`)
}

// mutates makes a policy that patches every write of such resources in the namespace. remove removes the
// policy.
func mutates(t *testing.T, namespace, version string, resources []any, patches string) (remove func()) {
	t.Helper()
	group, version, _ := strings.Cut(version, "/")
	policy := func(kind string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetAPIVersion("admissionregistration.k8s.io/v1")
		u.SetKind(kind)
		u.SetName("changes-" + namespace)
		return u
	}
	var made []*unstructured.Unstructured
	for _, object := range []*unstructured.Unstructured{
		policy("MutatingAdmissionPolicy", map[string]any{
			"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"matchConstraints": map[string]any{
				"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}},
				"resourceRules": []any{
					map[string]any{"apiGroups": []any{group}, "apiVersions": []any{version}, "operations": []any{"CREATE", "UPDATE"}, "resources": resources},
				},
			},
			"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{"expression": patches}}},
		}),
		policy("MutatingAdmissionPolicyBinding", map[string]any{"policyName": "changes-" + namespace}),
	} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		made = append(made, object)
	}
	remove = func() {
		for _, object := range made {
			_ = admin.Delete(context.Background(), object)
		}
	}
	t.Cleanup(remove)
	return remove
}

// probeDeployment is one that a policy changes.
func probeDeployment(namespace string) *appsv1.Deployment {
	labels := map[string]string{"app": "probe"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: namespace, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "c", Image: "c", Resources: corev1.ResourceRequirements{Requests: list("cpu", "10m")}}},
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: corev1.ScheduleAnyway,
				}},
			}},
		},
	}
}

// The operator takes admission's version of its write as written: it doesn't write again and again, and the
// cluster becomes ready. This also holds after a restart of the operator, and after a change of the spec.
func TestAWriteThatAdmissionChangedCountsAsWritten(t *testing.T) {
	w := newNamespace(t)
	changedByAdmission(t, w.namespace)
	w.eventually("admission changes what is written", func() error {
		set := probeDeployment(w.namespace)
		if err := admin.Create(t.Context(), set, client.DryRunAll); err != nil {
			return err
		}
		if got := set.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "250m" {
			return fmt.Errorf("it asks for %s CPU", got)
		}
		return nil
	})
	w.startOperator()
	w.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").With(routed).Obj())
	w.settled(2)
	w.rests()
	w.restartOperator()
	w.settled(2)
	w.rests()
	before := w.statefulSet().Generation
	w.change(&cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: name}}, `{"spec":{"threads":2}}`)
	w.eventually("a change of the spec is rolled out", func() error {
		if set := w.statefulSet(); set.Generation == before {
			return fmt.Errorf("generation %d", set.Generation)
		}
		return nil
	})
	w.settled(2)
	w.rests()

	// Later changes by other clients are reverted, as without such a policy.
	before = w.statefulSet().Generation
	w.change(w.statefulSet(), `{"spec":{"template":{"spec":{"enableServiceLinks":true}}}}`)
	w.eventually("a stranger's change is reverted", func() error {
		if links := w.statefulSet().Spec.Template.Spec.EnableServiceLinks; ptr.Deref(links, true) {
			return fmt.Errorf("enableServiceLinks is true")
		}
		return nil
	})
	w.settled(2)
	w.rests()
}

// hardensConstraints makes admission change a key of each topology spread constraint of the namespace.
func (w *world) hardensConstraints() {
	w.Helper()
	const path = "/spec/template/spec/topologySpreadConstraints"
	hard := func(i int) string {
		return fmt.Sprintf(`(has(object.spec.template.spec.topologySpreadConstraints) && size(object.spec.template.spec.topologySpreadConstraints) > %d ?
			[JSONPatch{op: "replace", path: "%s/%d/whenUnsatisfiable", value: "DoNotSchedule"}] : [])`, i, path, i)
	}
	mutates(w.T, w.namespace, "apps/v1", []any{"statefulsets", "deployments"}, hard(0)+" + "+hard(1)+" + "+hard(2)+" + "+hard(3))
	w.eventually("admission changes what is written", func() error {
		probe := probeDeployment(w.namespace)
		if err := admin.Create(w.Context(), probe, client.DryRunAll); err != nil {
			return err
		}
		if got := probe.Spec.Template.Spec.TopologySpreadConstraints[0].WhenUnsatisfiable; got != corev1.DoNotSchedule {
			return fmt.Errorf("the probe has %s", got)
		}
		return nil
	})
}

// Admission may change the key of an element in a list with keys, too. Then the next write would bring the
// element back beside admission's version, and admission would make two equal ones.
func TestAKeyThatAdmissionChangedStaysChanged(t *testing.T) {
	w := newNamespace(t)
	w.hardensConstraints()
	w.startOperator()
	w.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").With(routed).Obj())
	w.settled(2)
	w.rests()
	w.scale(3)
	w.settled(3)
	w.change(w.memcached(), `{"spec":{"threads":2,"router":{"podTemplate":{"nodeSelector":{}}}}}`)
	w.settled(3)
	w.rests()
	equal(w, "spread", w.statefulSet().Spec.Template.Spec.TopologySpreadConstraints[0].WhenUnsatisfiable, corev1.DoNotSchedule)
}

// The template is kept while the volumes are too small, and is written with another size. The template stays
// as admission made it, so no member is replaced.
func TestATemplateThatIsKeptStaysAsAdmissionMadeIt(t *testing.T) {
	w := newNamespace(t)
	w.hardensConstraints()
	w.startOperator()
	w.create(apitest.MakeMemcached(name).Size(1).Storage("0").Obj())
	w.settled(1)
	before := w.statefulSet().Spec.Template
	w.change(w.memcached(), `{"spec":{"memory":"1Gi"}}`)
	w.degraded(cachev1alpha1.ReasonVolumesWait)
	w.scale(2)
	w.sizeBecomes(2)
	w.rests()
	equal(w, "the template", w.statefulSet().Spec.Template, before)
	w.change(w.memcached(), `{"spec":{"memory":"64Mi","threads":2}}`)
	w.settled(2)
	w.rests()
	equal(w, "spread", w.statefulSet().Spec.Template.Spec.TopologySpreadConstraints, before.Spec.TopologySpreadConstraints)
}

// Admission bounds the size of a claim's request. The operator asks once in five minutes, and status says
// why.
func TestAVolumeThatAdmissionKeepsSmallIsNamed(t *testing.T) {
	w := newNamespace(t)
	mutates(t, w.namespace, "/v1", []any{"persistentvolumeclaims"},
		`quantity(string(object.spec.resources.requests["storage"])).compareTo(quantity("200Mi")) > 0 ?
			[JSONPatch{op: "replace", path: "/spec/resources/requests/storage", value: "200Mi"}] : []`)
	w.eventually("admission changes what is written", func() error {
		probe := bareClaim("probe")
		probe.Namespace, probe.Spec.Resources.Requests = w.namespace, list("storage", "1Gi")
		if err := admin.Create(t.Context(), probe, client.DryRunAll); err != nil || probe.Spec.Resources.Requests.Storage().String() != "200Mi" {
			return fmt.Errorf("it asks for %s: %w", probe.Spec.Resources.Requests.Storage(), err)
		}
		return nil
	})
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name), 1)
	w.change(w.memcached(), `{"spec":{"storage":{"size":"300Mi"}}}`)
	w.degraded(cachev1alpha1.ReasonVolumesCannotGrow, "asked for 300Mi", "admission made 200Mi")
	w.rests()
}

// Status names a policy that sets two replicas everywhere. When the policy is gone, the cluster goes on after
// the note of what was sent is removed, as the runbook says.
func TestASizeThatAdmissionChangesIsNamed(t *testing.T) {
	w := newNamespace(t)
	remove := mutates(t, w.namespace, "apps/v1", []any{"statefulsets", "deployments"},
		`object.spec.replicas < 2 ? [JSONPatch{op: "replace", path: "/spec/replicas", value: 2}] : []`)
	w.eventually("admission changes what is written", func() error {
		probe := probeDeployment(w.namespace)
		if err := admin.Create(t.Context(), probe, client.DryRunAll); err != nil || *probe.Spec.Replicas != 2 {
			return fmt.Errorf("%d replicas: %w", *probe.Spec.Replicas, err)
		}
		return nil
	})
	w.startOperator()
	w.create(apitest.MakeMemcached(name).Size(3).Storage("128Mi").Obj())
	w.settled(3)
	w.scale(1)
	w.degraded(cachev1alpha1.ReasonSizeChangedByAdmission, "asked for 1 members", "admission made 2")
	w.condition(cachev1alpha1.ConditionReady, metav1.ConditionFalse, cachev1alpha1.ReasonSizeChangedByAdmission)
	w.rests()
	remove()
	w.eventually("admission changes nothing", func() error {
		probe := probeDeployment(w.namespace)
		if err := admin.Create(t.Context(), probe, client.DryRunAll); err != nil || *probe.Spec.Replicas != 1 {
			return fmt.Errorf("%d replicas: %w", *probe.Spec.Replicas, err)
		}
		return nil
	})
	w.change(w.statefulSet(), `{"metadata":{"annotations":{"cache.example.com/applied":null}}}`)
	w.settled(1)
	w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionFalse, cachev1alpha1.ReasonHealthy)
}

func TestASizeOfAPlainClusterThatAdmissionChangesIsNamed(t *testing.T) {
	tier.Second(t, "TestASizeThatAdmissionChangesIsNamed")
	w := newNamespace(t)
	mutates(t, w.namespace, "apps/v1", []any{"deployments"},
		`object.spec.replicas < 2 ? [JSONPatch{op: "replace", path: "/spec/replicas", value: 2}] : []`)
	w.eventually("admission changes what is written", func() error {
		probe := probeDeployment(w.namespace)
		if err := admin.Create(t.Context(), probe, client.DryRunAll); err != nil || *probe.Spec.Replicas != 2 {
			return fmt.Errorf("%d replicas: %w", *probe.Spec.Replicas, err)
		}
		return nil
	})
	w.startOperator()
	w.create(apitest.MakeMemcached(name).Size(1).Obj())
	w.degraded(cachev1alpha1.ReasonSizeChangedByAdmission, "asked for 1 members", "admission made 2")
	w.rests()
	w.scale(2)
	w.settled(2)
}

// The same holds for the Secret of spec.binding, which is not watched, and which a policy labels.
func TestASecretThatAdmissionChangedCountsAsWritten(t *testing.T) {
	tier.Second(t, "TestAWriteThatAdmissionChangedCountsAsWritten")
	w := newNamespace(t)
	mutates(t, w.namespace, "/v1", []any{"secrets"},
		`[JSONPatch{op: "add", path: "/metadata/labels/app.kubernetes.io~1managed-by", value: "platform"}]`)
	w.eventually("admission changes what is written", func() error {
		probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: w.namespace, Labels: map[string]string{"a": "b"}}}
		if err := admin.Create(t.Context(), probe, client.DryRunAll); err != nil || probe.Labels["app.kubernetes.io/managed-by"] != "platform" {
			return fmt.Errorf("labels %v: %w", probe.Labels, err)
		}
		return nil
	})
	w.grantHere()
	w.grantBinding()
	w.startOperator()
	w.create(apitest.MakeMemcached(name).Size(1).With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Binding = &cachev1alpha1.BindingSpec{SecretName: bindingName}
	}).Obj())
	w.settled(1)
	w.noCondition(cachev1alpha1.ConditionBindable)
	version := w.binding().ResourceVersion
	equal(w, "the label", w.binding().Labels["app.kubernetes.io/managed-by"], "platform")
	w.restartOperator() // otherwise the operator looks at it once a minute
	w.settled(1)
	w.rests()
	equal(w, "the Secret's version", w.binding().ResourceVersion, version)
	w.change(w.binding(), `{"data":{"host":"YW5vdGhlcg=="}}`)
	w.restartOperator()
	w.bindingHas(map[string]string{"host": "cache-0.cache-list." + w.namespace + ".svc"})
}
