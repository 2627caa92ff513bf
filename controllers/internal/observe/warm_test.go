package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
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

func backup(name string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
}

// filled is a cluster that is filled from claims, with this record.
func filled(record action.WarmRecord) *State {
	c := testCluster()
	c.UID = "memcached"
	c.Spec.WarmFrom = &cachev1alpha1.WarmSource{Volumes: &cachev1alpha1.WarmVolumes{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"backup": "monday"}}}}
	record.UID, record.Source = c.UID, build.WarmSource(c)
	c.Annotations = map[string]string{cachev1alpha1.AnnotationWarmed: record.String()}
	return &State{Cluster: c, Now: time.Unix(1e9, 0)}
}

// copies adds the Job that copies the claim.
func (o *State) copies(claim string) *State {
	o.Warms = append(o.Warms, batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "warm", UID: "job", Labels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMove}, CreationTimestamp: metav1.Unix(1e9-7200, 0),
		Annotations: map[string]string{
			cachev1alpha1.AnnotationClaimUID: string(o.Cluster.UID),
			cachev1alpha1.AnnotationTarget:   ring.WarmTarget(build.WarmMade(o.Cluster, nil, types.UID("uid-"+claim), false), 0, ring.Record{}),
		},
	}})
	return o
}

// A claim that can't be read now is left like the others: no Job is the last one before it is copied.
func TestAClaimThatCannotBeReadIsStillLeft(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	var many []corev1.PersistentVolumeClaim
	for i := range action.MaxWarmClaims + 1 {
		many = append(many, backup(fmt.Sprintf("b%02d", i)))
	}
	goes := backup("b")
	goes.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	three := []corev1.PersistentVolumeClaim{backup("a"), goes, backup("c")}
	copied := []string{plan.ClaimHash("uid-a"), plan.ClaimHash("uid-b")}
	for name, test := range map[string]struct {
		o      *State
		claims []corev1.PersistentVolumeClaim
		asked  string
		left   int
		there  bool
		first  string
	}{
		"one goes":                         {o: filled(action.WarmRecord{}), claims: three, left: 3, first: "a"},
		"one goes while a Job copies":      {o: filled(action.WarmRecord{}).copies("a"), claims: three, left: 3, first: "a"},
		"too many":                         {o: filled(action.WarmRecord{}), claims: many, left: action.MaxWarmClaims, first: "b00"},
		"two are copied":                   {o: filled(action.WarmRecord{Claims: copied}), claims: []corev1.PersistentVolumeClaim{backup("a"), backup("b"), backup("c")}, left: 1, there: true, first: "c"},
		"two are copied, then given up":    {o: filled(action.WarmRecord{Result: action.WarmGivenUp, Claims: copied}), claims: []corev1.PersistentVolumeClaim{backup("a"), backup("b"), backup("c")}, asked: cachev1alpha1.WarmAgain, left: 1, there: true, first: "c"},
		"two are copied, and all are gone": {o: filled(action.WarmRecord{Claims: copied}), there: true},
		"there was none":                   {o: filled(action.WarmRecord{})},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reader{Live: &backups{claims: test.claims}}
			if test.asked != "" {
				test.o.Cluster.Annotations[cachev1alpha1.AnnotationWarm] = test.asked
			}
			if err := r.observeWarm(t.Context(), test.o); err != nil {
				t.Fatal(err)
			}
			w := test.o.planWarm()
			if len(w.Left) != test.left || test.left > 0 && w.Left[0].Name != test.first || (w.NotThere == "") != test.there {
				t.Errorf("left are %+v (%s)", w.Left, w.NotThere)
			}
			if len(test.o.Warms) > 0 && (w.Made != w.Left[0].Made || w.Waits.Since.IsZero()) {
				t.Errorf("its Job is made of %s, and waits since %s", w.Made, w.Waits.Since)
			}
		})
	}
}

// Since when a source has failed is forgotten with the source.
func TestAFailureIsForgottenWithItsSource(t *testing.T) {
	tier.Second(t, "TestAWarmingComesAfterAllThatIsNewerAndIsRecorded")
	for _, failed := range []bool{false, true} {
		var record action.WarmRecord
		if failed {
			record.Since = time.Unix(1e8, 0)
		}
		o := filled(record)
		if r := FailedBefore(o.Cluster); r != nil {
			t.Errorf("it is the present source: %+v", r)
		}
		o.Cluster.Spec.WarmFrom = nil
		if err := (&Reader{}).observeWarm(t.Context(), o); err != nil || (o.Warm != nil) != failed {
			t.Errorf("failed %t: there is something to be removed: %t, %v", failed, o.Warm != nil, err)
		}
	}
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
