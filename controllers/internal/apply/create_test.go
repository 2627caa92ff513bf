package apply

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/ring"
)

// lists is an API server with a Memcached, and perhaps a ConfigMap with the name of its list.
type lists struct {
	client.Client
	cluster *cachev1alpha1.Memcached
	list    *corev1.ConfigMap
	// applied has the written versions of the list, gets the read ones.
	applied, gets []string
}

func (s *lists) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.gets = append(s.gets, key.Name)
	switch o := object.(type) {
	case *cachev1alpha1.Memcached:
		s.cluster.DeepCopyInto(o)
		return nil
	case *corev1.ConfigMap:
		if s.list != nil {
			s.list.DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *lists) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	version := ""
	if v := o.(*coreac.ConfigMapApplyConfiguration).ResourceVersion; v != nil {
		version = *v
	}
	s.applied = append(s.applied, version)
	if s.list != nil && version != "" && version != s.list.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{}, s.list.Name, errors.New("the object has been modified"))
	}
	return nil
}

// The cache has no list, and another client creates one before the operator does. The operator then
// reads that list. A list of another owner is an error and stays as it is. The cluster's own list
// is not overwritten.
func TestAListThatTheCacheLacksIsNeverWrittenOver(t *testing.T) {
	of := func(cluster *cachev1alpha1.Memcached, labels map[string]string) *corev1.ConfigMap {
		list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: build.ServersName("cache"), UID: "list", ResourceVersion: "7", Labels: labels}}
		list.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cluster, cachev1alpha1.GroupVersion.WithKind("Memcached"))}
		return list
	}
	cluster := apitest.MakeMemcached("cache").Size(2).Storage("128Mi").Obj()
	cluster.Namespace, cluster.UID = "default", "memcached"
	other := cluster.DeepCopy()
	other.UID = types.UID("another")
	labelled := build.ServersConfigMap(cluster, nil, ring.Record{}).Labels
	for what, test := range map[string]struct {
		list    *corev1.ConfigMap
		applied []string
		taken   bool
	}{
		"there is none":             {nil, []string{noVersion}, false},
		"another owner's":           {of(other, labelled), []string{noVersion}, true},
		"its own, and it's current": {of(cluster, labelled), []string{noVersion}, false},
		"its own, without labels":   {of(cluster, nil), []string{noVersion, "7"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			s := &lists{cluster: cluster, list: test.list}
			a := &Applier{Client: s, Reader: &observe.Reader{Cache: s, Live: s}, Matches: &remembered.Matches{}, Clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0))}
			_, err := a.Apply(t.Context(), cluster, &observe.Objects{}, []action.Action{action.WriteList{}})
			taken := (*identity.NameTakenError)(nil)
			if is := errors.As(err, &taken); is != test.taken || !is && err != nil {
				t.Errorf("%v", err)
			}
			if !slices.Equal(s.applied, test.applied) {
				t.Errorf("applied in versions %q, want %q", s.applied, test.applied)
			}
		})
	}
}
