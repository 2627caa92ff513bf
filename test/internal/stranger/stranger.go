// Package stranger plays people and other controllers in the namespace of a cluster: they create, relabel and
// delete objects that look like the operator's, at random. Strangers may not change the cluster's outcome
// (invariant 12).
package stranger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// namePrefix begins the names of a stranger's objects, if the stranger may choose the name.
const namePrefix = "stranger-"

// Stranger acts on one cluster.
type Stranger struct {
	client    client.Client
	namespace string
	cluster   string
	acts      []act
	made      int
}

// act is one thing that a stranger does, by a random number. act returns a description.
type act func(ctx context.Context, random uint64) (string, error)

// New makes a stranger to the cluster.
func New(c client.Client, namespace, cluster string) *Stranger {
	s := &Stranger{client: c, namespace: namespace, cluster: cluster}
	s.acts = []act{s.makeJob, s.makePod, s.makeClaim, s.unlabel, s.relabel, s.annotate, s.leaveNothing}
	return s
}

// Act does one of the things that strangers do. A missing object is no error.
func (s *Stranger) Act(ctx context.Context, random uint64) (string, error) {
	draw := rand.New(rand.NewPCG(random, 0))
	what, err := s.acts[draw.IntN(len(s.acts))](ctx, draw.Uint64())
	return what, client.IgnoreAlreadyExists(client.IgnoreNotFound(err))
}

// Leave deletes all objects that strangers have made.
func (s *Stranger) Leave(ctx context.Context) error {
	_, err := s.leaveNothing(ctx, 0)
	return err
}

// labels are copies of those of a component of the cluster.
func (s *Stranger) labels(component string) map[string]string {
	return map[string]string{
		cachev1alpha1.LabelCluster: s.cluster, cachev1alpha1.LabelInstance: s.cluster,
		cachev1alpha1.LabelName: cachev1alpha1.AppName, cachev1alpha1.LabelManagedBy: cachev1alpha1.ManagedBy,
		cachev1alpha1.LabelComponent: component,
	}
}

var components = []string{cachev1alpha1.ComponentMember, cachev1alpha1.ComponentDrainer, cachev1alpha1.ComponentMove}

// annotations are those of a drainer. Some make no sense.
func (s *Stranger) annotations(ctx context.Context, random uint64) map[string]string {
	uid := "no-claims"
	var claims corev1.PersistentVolumeClaimList
	if err := s.client.List(ctx, &claims, client.InNamespace(s.namespace)); err == nil && len(claims.Items) > 0 {
		uid = string(claims.Items[random%uint64(len(claims.Items))].UID)
	}
	return [...]map[string]string{
		nil,
		{cachev1alpha1.AnnotationClaimUID: uid},
		{cachev1alpha1.AnnotationClaimUID: uid, cachev1alpha1.AnnotationSurvivors: "0"},
		{cachev1alpha1.AnnotationClaimUID: uid, cachev1alpha1.AnnotationSurvivors: "1", cachev1alpha1.AnnotationTarget: "9-deadbeef"},
	}[random>>8%4]
}

func (s *Stranger) meta(kind string, labels, annotations map[string]string) metav1.ObjectMeta {
	s.made++
	return metav1.ObjectMeta{
		Namespace: s.namespace, Name: fmt.Sprintf("%s%s-%d", namePrefix, kind, s.made), Labels: labels, Annotations: annotations,
	}
}

// idle is a pod that no scheduler schedules.
func idle() corev1.PodSpec {
	return corev1.PodSpec{
		SchedulerName: "none", RestartPolicy: corev1.RestartPolicyNever,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "drainer", Image: "none/none", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
}

func (s *Stranger) makeJob(ctx context.Context, random uint64) (string, error) {
	labels, annotations := s.labels(components[1+random%2]), s.annotations(ctx, random)
	job := &batchv1.Job{ObjectMeta: s.meta("job", labels, annotations), Spec: batchv1.JobSpec{
		Suspend: ptr.To(true), Template: corev1.PodTemplateSpec{Spec: idle()},
	}}
	return "make Job " + job.Name, s.client.Create(ctx, job)
}

func (s *Stranger) makePod(ctx context.Context, random uint64) (string, error) {
	pod := &corev1.Pod{ObjectMeta: s.meta("pod", s.labels(components[random%3]), s.annotations(ctx, random)), Spec: idle()}
	return "make pod " + pod.Name, s.client.Create(ctx, pod)
}

// makeClaim makes a claim with a number that no member has.
func (s *Stranger) makeClaim(ctx context.Context, random uint64) (string, error) {
	numbers := [...]string{"512", "99999", "2147483646", "2147483648", "-1", "007"}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: s.meta("claim", s.labels(cachev1alpha1.ComponentMember), map[string]string{cachev1alpha1.AnnotationMoved: "9223372036854775807"}),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(namePrefix + "none"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
	claim.Name = fmt.Sprintf("data-%s-%s", s.cluster, numbers[random%uint64(len(numbers))])
	return "make claim " + claim.Name, s.client.Create(ctx, claim)
}

// pick returns one of the cluster's own objects, or nil. Objects of drains are not among them, because they
// come and go too fast.
func (s *Stranger) pick(ctx context.Context, random uint64) (client.Object, error) {
	name := s.cluster
	objects := []client.Object{
		&appsv1.StatefulSet{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}, &corev1.ConfigMap{}, &corev1.PersistentVolumeClaim{},
	}
	object := objects[random%uint64(len(objects))]
	switch object.(type) {
	case *corev1.ConfigMap:
		name += "-servers"
	case *corev1.PersistentVolumeClaim:
		name = fmt.Sprintf("data-%s-%d", s.cluster, random>>8%4)
	}
	return object, s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, object)
}

// change patches one of the cluster's own objects.
func (s *Stranger) change(ctx context.Context, random uint64, what, patch string) (string, error) {
	object, err := s.pick(ctx, random)
	if err != nil {
		return what, err
	}
	return fmt.Sprintf("%s of %T %s", what, object, object.GetName()), s.client.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

func (s *Stranger) unlabel(ctx context.Context, random uint64) (string, error) {
	return s.change(ctx, random, "take the label off", fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, cachev1alpha1.LabelCluster))
}

func (s *Stranger) relabel(ctx context.Context, random uint64) (string, error) {
	return s.change(ctx, random, "rewrite labels", fmt.Sprintf(`{"metadata":{"labels":{%q:"elsewhere",%q:"Helm",%q:"other"}}}`,
		cachev1alpha1.LabelComponent, cachev1alpha1.LabelManagedBy, cachev1alpha1.LabelInstance))
}

// annotate writes an annotation that is nearly as long as the API server takes.
func (s *Stranger) annotate(ctx context.Context, random uint64) (string, error) {
	const much = 200 << 10
	return s.change(ctx, random, "write a long annotation", fmt.Sprintf(`{"metadata":{"annotations":{"example.com/notes":%q}}}`, strings.Repeat("x", much)))
}

// leaveNothing deletes all objects that strangers have made.
func (s *Stranger) leaveNothing(ctx context.Context, _ uint64) (string, error) {
	const what = "delete what strangers made"
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}} {
		if err := s.client.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			return what, err
		}
		for _, object := range items(list) {
			if !theirs(object, s.cluster) {
				continue
			}
			err := s.client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground), client.GracePeriodSeconds(0))
			if client.IgnoreNotFound(err) != nil {
				return what, err
			}
		}
	}
	return what, nil
}

func theirs(o client.Object, cluster string) bool {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok {
		return strings.HasPrefix(o.GetName(), namePrefix)
	}
	return strings.HasPrefix(claim.Name, "data-"+cluster+"-") && ptr.Deref(claim.Spec.StorageClassName, "") == namePrefix+"none"
}

func items(list client.ObjectList) []client.Object {
	var out []client.Object
	switch l := list.(type) {
	case *batchv1.JobList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *corev1.PodList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *corev1.PersistentVolumeClaimList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	}
	return out
}
