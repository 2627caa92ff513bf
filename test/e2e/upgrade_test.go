package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/tier"
)

// Another image of the operator is deployed while a drain runs. The drain of the earlier operator goes on, and
// its receipt counts. The members, whose supervisor is from the new image, restart one by one with their cache.
// The test removes the operator for a moment, so it runs by itself.
func TestAnUpgradeInTheMiddleOfADrainLosesNothing(t *testing.T) {
	tier.Second(t, "TestJourneyOfANode")
	spec := persistent(3)
	spec.Drain.RateLimit = &cachev1alpha1.RateLimit{ItemsPerSecond: ptr.To[int64](300)} // this takes a dozen seconds or more
	f := setup(t, spec)
	objects := f.objects()
	f.fill(3, objects)

	f.scale(2)
	f.inDrainPhase(cachev1alpha1.DrainAdding)
	f.upgrade(2, nil)
	f.settled(2)
	f.expectAllSoon(2, objects)
	f.expectReceipt(false)
}

// upgrade deploys another image of the operator while a drain of the last member goes on, which must not begin
// again. then is called when only the new operator runs. At the end the drain is over, and the remaining
// members are from the new image.
func (f *fixture) upgrade(left int, then func()) {
	f.Helper()
	job := f.job()
	image := f.operatorImage()
	next := image + nextTag
	f.tagImage(image, next)
	f.Cleanup(func() { f.deploy(image) })
	f.deploy(next)

	if then != nil {
		then()
	}
	if again := f.job(); again != nil && again.UID != job.UID {
		f.Errorf("the drain was begun anew: Job %s", again.Name)
	}
	f.eventually(fmt.Sprintf("claim %d is gone", left), func() bool { return f.claim(left) == nil })
	f.eventually("the members come from the new image", func() bool {
		for ordinal := range left {
			if pod := f.pod(ordinal); pod == nil || !ready(pod) || pod.Spec.InitContainers[0].Image != next {
				return false
			}
		}
		return true
	})
}

// job returns the one that drains, or nil.
func (f *fixture) job() *batchv1.Job {
	f.Helper()
	var jobs batchv1.JobList
	f.must(kube.List(f.ctx, &jobs, client.InNamespace(f.namespace)))
	if len(jobs.Items) == 0 {
		return nil
	}
	return &jobs.Items[0]
}

// nextTag is appended to the name of an image.
const nextTag = "-next"

var operatorKey = client.ObjectKey{Namespace: operatorNamespace, Name: "memcached-operator-manager"}

func (f *fixture) operatorImage() string {
	f.Helper()
	deployment := &appsv1.Deployment{}
	f.must(kube.Get(f.ctx, operatorKey, deployment))
	return deployment.Spec.Template.Spec.Containers[0].Image
}

// tagImage gives an image of the nodes a second name.
func (f *fixture) tagImage(image, name string) {
	f.Helper()
	var nodes corev1.NodeList
	f.must(kube.List(f.ctx, &nodes))
	for _, n := range nodes.Items {
		out, err := exec.CommandContext(f.ctx, "ctr", "--address="+deployed.Containerd(n.Name), "--namespace=k8s.io",
			"images", "tag", "--force", image, name).CombinedOutput()
		if err != nil {
			f.Fatalf("tag the image on %s: %v: %s", n.Name, err, out)
		}
	}
}

// deploy deploys the operator from this image, and waits until only this operator runs.
func (f *fixture) deploy(image string) {
	f.Helper()
	ctx, cancel := cleanupContext() // this is called in a cleanup, too
	defer cancel()
	if err := deployOperator(ctx, image); err != nil {
		f.Fatal(err)
	}
}

func deployOperator(ctx context.Context, image string) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[
		{"name":"manager","image":%[1]q,"env":[{"name":"OPERATOR_IMAGE","value":%[1]q}]}]}}}}`, image)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorKey.Namespace, Name: operatorKey.Name}}
	if err := kube.Patch(ctx, deployment, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	return deployed.Until(ctx, image+" is deployed", func() error {
		if err := kube.Get(ctx, operatorKey, deployment); err != nil {
			return err
		}
		if s := deployment.Status; s.ObservedGeneration != deployment.Generation || s.UpdatedReplicas != 1 || s.Replicas != 1 || s.ReadyReplicas != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}
