package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// createForeign makes n pods, n claims and n Jobs in the first clusters' namespace. These objects belong to
// no cluster, and no scheduler, provisioner or Job controller acts on them. n StatefulSets without members
// and without a StatefulSetDrain are in the namespaces of n clusters, because their controller reads all of a
// namespace for each.
func (w *world) createForeign(n int) phase {
	return func(ctx context.Context, _ *column) (float64, error) {
		began := time.Now()
		for i := 0; i < n; i += perNamespace {
			if err := w.createNamespace(ctx, key(i).Namespace); err != nil {
				return 0, err
			}
		}
		said := time.Now()
		for from := 0; from < n; from += 500 {
			if time.Since(said) > 5*time.Second {
				said = time.Now()
				w.say("%d of %d foreign StatefulSets, pods, claims and Jobs", from, n)
			}
			err := each(ctx, from, min(n, from+500), func(ctx context.Context, i int) error {
				for _, o := range foreign(metav1.ObjectMeta{
					Namespace: key(0).Namespace, Name: fmt.Sprintf("foreign-%d", i),
					Labels: map[string]string{"app.kubernetes.io/name": "foreign", "app.kubernetes.io/managed-by": "another"},
				}) {
					if _, is := o.(*appsv1.StatefulSet); is {
						o.SetNamespace(key(i).Namespace)
					}
					if err := w.client.Create(ctx, o); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return 0, err
			}
		}
		return time.Since(began).Seconds(), nil
	}
}

func foreign(about metav1.ObjectMeta) []client.Object {
	pod := corev1.PodSpec{
		SchedulerName: "none",
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "foreign", Image: "foreign:scale"}},
	}
	wants := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		// The binder waits for this volume, which never exists.
		StorageClassName: ptr.To(""), VolumeName: "nowhere-" + about.Name,
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
	selects := map[string]string{"hibernating": about.Name}
	return []client.Object{
		&appsv1.StatefulSet{ObjectMeta: about, Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](0), ServiceName: about.Name, Selector: &metav1.LabelSelector{MatchLabels: selects},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selects}, Spec: corev1.PodSpec{Containers: pod.Containers},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: wants}},
		}},
		&corev1.Pod{ObjectMeta: about, Spec: pod},
		&corev1.PersistentVolumeClaim{ObjectMeta: about, Spec: wants},
		&batchv1.Job{ObjectMeta: about, Spec: batchv1.JobSpec{
			ManagedBy: ptr.To("example.com/none"),
			Template:  corev1.PodTemplateSpec{Spec: pod},
		}},
	}
}
