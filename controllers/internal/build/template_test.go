package build

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// A field that is left out of the hash must not change the pods, because its change would wait for
// a turn. Fields that people change most must be left out, because their change would also roll out
// an upgrade's change.
func TestTheHashOfATemplatesSpecIsThatOfWhatThePodsDependOn(t *testing.T) {
	build := func() *cachev1alpha1.Memcached {
		return apitest.MakeMemcached("cache").EveryField().Storage("1Gi").With(discovers).Defaulted().Obj()
	}
	before := build()
	for name, test := range map[string]struct {
		change func(*cachev1alpha1.MemcachedSpec)
		pods   bool
	}{
		"nothing":     {func(*cachev1alpha1.MemcachedSpec) {}, false},
		"size":        {func(s *cachev1alpha1.MemcachedSpec) { s.Size = ptr.To[int32](77) }, false},
		"paused":      {func(s *cachev1alpha1.MemcachedSpec) { s.Paused = !s.Paused }, false},
		"routing":     {func(s *cachev1alpha1.MemcachedSpec) { s.Routing = cachev1alpha1.RoutingSpec{Client: "dalli"} }, false},
		"drain":       {func(s *cachev1alpha1.MemcachedSpec) { s.Drain = cachev1alpha1.DrainSpec{Parallelism: 7} }, false},
		"binding":     {func(s *cachev1alpha1.MemcachedSpec) { s.Binding = &cachev1alpha1.BindingSpec{SecretName: "x"} }, false},
		"routers":     {func(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{} }, false},
		"disruptions": {func(s *cachev1alpha1.MemcachedSpec) { s.PodDisruptionBudget.Enabled = ptr.To(false) }, false},
		"network policy": {func(s *cachev1alpha1.MemcachedSpec) {
			s.NetworkPolicy = &cachev1alpha1.NetworkPolicySpec{Clients: []networkingv1.NetworkPolicyPeer{{}}}
		}, false},
		"volume's size":   {func(s *cachev1alpha1.MemcachedSpec) { s.Storage.Size = resource.MustParse("9Gi") }, false},
		"storage class":   {func(s *cachev1alpha1.MemcachedSpec) { s.Storage.StorageClassName = ptr.To("fast") }, false},
		"service monitor": {func(s *cachev1alpha1.MemcachedSpec) { s.Metrics.ServiceMonitor = nil }, false},
		"image":           {func(s *cachev1alpha1.MemcachedSpec) { s.Image = "memcached:other" }, true},
		"memory":          {func(s *cachev1alpha1.MemcachedSpec) { s.Memory = ptr.To(resource.MustParse("512Mi")) }, true},
		"port":            {func(s *cachev1alpha1.MemcachedSpec) { s.ContainerPort = 4711 }, true},
		"pods' labels":    {func(s *cachev1alpha1.MemcachedSpec) { s.PodTemplate.Labels = map[string]string{"a": "b"} }, true},
		"a sidecar":       {func(s *cachev1alpha1.MemcachedSpec) { s.PodTemplate.Containers = addition().Containers }, true},
		"a variable":      {func(s *cachev1alpha1.MemcachedSpec) { s.PodTemplate.Env = addition().Env }, true},
		"storage mode":    {func(s *cachev1alpha1.MemcachedSpec) { s.Storage.Mode = cachev1alpha1.StorageMapped }, true},
		"discovery":       {func(s *cachev1alpha1.MemcachedSpec) { s.Discovery = nil }, true},
		"its port":        {func(s *cachev1alpha1.MemcachedSpec) { s.Discovery.Port = 4713 }, true},
		"port of metrics": {func(s *cachev1alpha1.MemcachedSpec) { s.Metrics.Port = 4712 }, true},
	} {
		after := build()
		test.change(&after.Spec)
		same := cmp.Diff(StatefulSet(before, Options{}, 3).Spec.Template, StatefulSet(after, Options{}, 3).Spec.Template)
		if (same != "") != test.pods {
			t.Errorf("%s: the pods change: %v, want %v:\n%s", name, same != "", test.pods, same)
		}
		if changed := TemplateSpec(before) != TemplateSpec(after); changed != test.pods {
			t.Errorf("%s: the hash changes: %v, want %v", name, changed, test.pods)
		}
	}
}

// The routers' pods have the same rules.
func TestTheHashOfTheRoutersSpecIsThatOfWhatTheirPodsDependOn(t *testing.T) {
	build := func() *cachev1alpha1.Memcached {
		c := apitest.MakeMemcached("cache").EveryField().Storage("1Gi").With(discovers).Defaulted().Obj()
		c.Spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2)}
		return c
	}
	before := build()
	for name, test := range map[string]struct {
		change func(*cachev1alpha1.MemcachedSpec)
		pods   bool
	}{
		"nothing":           {func(*cachev1alpha1.MemcachedSpec) {}, false},
		"size":              {func(s *cachev1alpha1.MemcachedSpec) { s.Size = ptr.To[int32](77) }, false},
		"paused":            {func(s *cachev1alpha1.MemcachedSpec) { s.Paused = !s.Paused }, false},
		"routing":           {func(s *cachev1alpha1.MemcachedSpec) { s.Routing = cachev1alpha1.RoutingSpec{Client: "dalli"} }, false},
		"number of routers": {func(s *cachev1alpha1.MemcachedSpec) { s.Router.Replicas = ptr.To[int32](5) }, false},
		"their Service":     {func(s *cachev1alpha1.MemcachedSpec) { s.Router.Service.Labels = map[string]string{"a": "b"} }, false},
		"members' image":    {func(s *cachev1alpha1.MemcachedSpec) { s.Image = "memcached:other" }, false},
		"volume's size":     {func(s *cachev1alpha1.MemcachedSpec) { s.Storage.Size = resource.MustParse("9Gi") }, false},
		"port":              {func(s *cachev1alpha1.MemcachedSpec) { s.ContainerPort = 4711 }, true},
		"item size":         {func(s *cachev1alpha1.MemcachedSpec) { s.MaxItemSize = ptr.To(resource.MustParse("3Mi")) }, true},
		"pods' labels":      {func(s *cachev1alpha1.MemcachedSpec) { s.Router.PodTemplate.Labels = map[string]string{"a": "b"} }, true},
		"a sidecar":         {func(s *cachev1alpha1.MemcachedSpec) { s.Router.PodTemplate.Containers = addition().Containers }, true},
		"members' priority": {func(s *cachev1alpha1.MemcachedSpec) { s.PodTemplate.PriorityClassName = "other" }, true},
		"failed reads":      {func(s *cachev1alpha1.MemcachedSpec) { s.Router.FailedReads = cachev1alpha1.FailedReadsError }, true},
		"TLS":               {func(s *cachev1alpha1.MemcachedSpec) { s.TLS = &cachev1alpha1.TLSSpec{SecretName: "another"} }, true},
		"a source": {func(s *cachev1alpha1.MemcachedSpec) {
			s.WarmFrom = &cachev1alpha1.WarmSource{Servers: []string{"old:11211"}}
		}, false},
		"logins": {func(s *cachev1alpha1.MemcachedSpec) { s.Auth = &cachev1alpha1.AuthSpec{SecretName: "another"} }, true},
	} {
		after := build()
		test.change(&after.Spec)
		same := cmp.Diff(Routers(before, Options{}).Spec.Template, Routers(after, Options{}).Spec.Template)
		if (same != "") != test.pods {
			t.Errorf("%s: the pods change: %v, want %v:\n%s", name, same != "", test.pods, same)
		}
		if changed := RouterSpec(before) != RouterSpec(after); changed != test.pods {
			t.Errorf("%s: the hash changes: %v, want %v", name, changed, test.pods)
		}
	}
}

// A new field of the spec that a cluster doesn't set changes no hash, because an upgrade of the
// operator would then replace the cluster's members.
func TestAFieldThatIsNotSetIsNoPartOfTheHash(t *testing.T) {
	b, err := json.Marshal(cachev1alpha1.MemcachedSpec{Metrics: &cachev1alpha1.MetricsSpec{}, Router: &cachev1alpha1.RouterSpec{}})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b); got != `{"router":{},"metrics":{}}` {
		t.Errorf("an empty spec is hashed as %s", got)
	}
}
