package observe

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/test/tier"
)

// backups is an API server with claims of a backup, and with another Memcached.
type backups struct {
	client.Client
	claims []corev1.PersistentVolumeClaim
	source *cachev1alpha1.Memcached
}

func (s *backups) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if l, is := list.(*corev1.PersistentVolumeClaimList); is {
		l.Items = s.claims
	}
	return nil
}

func (s *backups) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.source.DeepCopyInto(object.(*cachev1alpha1.Memcached))
	return nil
}

// A source that hibernates, or whose list was lost for a moment, is no reason to roll routers out twice.
func TestRoutersGoOnAskingASourceWithoutAList(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	green := apitest.MakeMemcached("green").Namespace("shop").Size(2).Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.TLS = &cachev1alpha1.TLSSpec{SecretName: "green-tls", ClientAuth: cachev1alpha1.ClientAuthRequired}
		s.Auth = &cachev1alpha1.AuthSpec{SecretName: "green-login"}
		s.Routing.ServerName, s.Routing.Client = "c{ordinal}", "dalli"
	}).Defaulted().Obj()
	green.Status.Servers = []string{"green-0.green.shop.svc:11211", "green-1.green.shop.svc:11211"}
	c := testCluster()
	c.Spec.Router = &cachev1alpha1.RouterSpec{}
	c.Spec.WarmFrom = &cachev1alpha1.WarmSource{Memcached: "green", OnMiss: true}
	before := build.Routers(c, build.Options{OnMiss: build.WarmFromMemcached(green)})
	o := &State{Cluster: c}
	o.Warm = &Warm{}
	o.Routers.Deployment = &appsv1.Deployment{}
	text, err := json.Marshal(before)
	if err == nil {
		err = json.Unmarshal(text, o.Routers.Deployment)
	}
	if err != nil {
		t.Fatal(err)
	}
	green.Status.Servers = nil
	r := &Reader{Cache: &backups{source: green}}
	if err := r.observeWarmMemcached(t.Context(), o); err != nil || o.Warm.NotThere == "" {
		t.Fatalf("%v, %+v", err, o.Warm)
	}
	if diff := cmp.Diff(before, build.Routers(c, build.Options{OnMiss: o.Warm.From})); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	blue := green.DeepCopy()
	blue.Name = "blue"
	if f := build.OnMissOf(blue, o.Routers.Deployment); f != nil {
		t.Errorf("the source is another one now, and they go on asking %s", f.From)
	}
	if f := build.OnMissOf(green, nil); f != nil {
		t.Errorf("there are no routers, and they ask %s", f.From)
	}
}
