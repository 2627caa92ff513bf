package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

func quantity(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func TestSpecThatCannotWorkIsRefusedWithASentence(t *testing.T) {
	w := newNamespace(t)
	cluster := func() *apitest.MemcachedBuilder { return apitest.MakeMemcached(name) }
	with := func(change func(*cachev1alpha1.MemcachedSpec)) *apitest.MemcachedBuilder {
		return cluster().With(change)
	}
	budget := func(away intstr.IntOrString) *apitest.MemcachedBuilder {
		return with(func(s *cachev1alpha1.MemcachedSpec) { s.PodDisruptionBudget.MaxUnavailable = &away })
	}
	const (
		flags    = "extraArgs must not have a flag that the operator sets itself"
		nameRule = "the name must be a DNS label"
		inMiB    = "memory must be a whole number of MiB"
		itemSize = "maxItemSize must be a whole number of bytes"
		lacking  = "extraArgs ends with a flag that lacks its value"
		plain    = "the drainer, which moves the items of leaving members, speaks memcached's text protocol"
		useTLS   = ": use tls"
		useAuth  = ": use auth"
		tooSmall = "storage.size must be larger than memory"

		pages = "memory must be 64Mi at least with storage, or with -L"

		disruptions = "podDisruptionBudget.maxUnavailable must be a number of members"
	)
	for what, test := range map[string]struct {
		object *apitest.MemcachedBuilder
		want   string
	}{
		"stable addresses without storage": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Routing.Addresses = cachev1alpha1.AddressesStable
		}), "routing.addresses: Stable needs storage"},
		"storage as large as memory":       {cluster().Memory("64Mi").Storage("64Mi"), tooSmall},
		"storage smaller than memory":      {cluster().Memory("1Gi").Storage("512Mi"), tooSmall},
		"storage smaller than the default": {cluster().Storage("10Mi"), tooSmall},
		"an unknown storage mode": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Storage = &cachev1alpha1.StorageSpec{Size: resource.MustParse("1Gi"), Mode: "Striped"}
		}), "Unsupported value"},
		"a memory limit that a file in memory exceeds": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Storage = &cachev1alpha1.StorageSpec{Size: resource.MustParse("1Gi"), Mode: cachev1alpha1.StorageSaved}
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		}), "resources.limits.memory must be larger than memory"},
		"an unknown client": {with(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Client = "mystery" }), "Unsupported value"},
		"a prefix that is hashed": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Routing = cachev1alpha1.RoutingSpec{Client: "gomemcache", KeyPrefix: "shop:"}
		}), "routing.keyPrefix is for libmemcached and pymemcache"},
		"a name of no member": {with(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.ServerName = "cache-0" }), "serverName"},
		"size 513":            {cluster().Size(513), "less than or equal to 512"},
		"a negative size":     {cluster().Size(-1), "greater than or equal to 0"},
		"port 0x10000":        {with(func(s *cachev1alpha1.MemcachedSpec) { s.ContainerPort = 65536 }), "less than or equal to 65535"},
		"memory 100k":         {cluster().Memory("100k"), inMiB},
		"memory of 1.5 bytes": {cluster().Memory("1500m"), inMiB},
		"memory not in MiB":   {cluster().Memory("100M"), inMiB},
		"memory below 8Mi":    {cluster().Memory("7Mi"), inMiB},
		"memory that memcached doesn't start with": {cluster().Memory("63Mi").Storage("1Gi"), pages},
		"-L with little memory":                    {cluster().Memory("8Mi").ExtraArgs("-vL"), pages},
		"--enable-largepages with little memory":   {cluster().Memory("63Mi").ExtraArgs("--enable-large"), pages},
		"a label of the operator's": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.Drain.PodTemplate.Labels = map[string]string{"cache.example.com/cluster": "other"}
			}), "podTemplate.labels must not have keys of cache.example.com",
		},
		"an annotation of the operator's": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.Drain.PodTemplate.Annotations = map[string]string{cachev1alpha1.AnnotationTarget: "1"}
			}), "podTemplate.annotations must not have keys of cache.example.com",
		},
		"a label that is too long": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.Drain.PodTemplate.Labels = map[string]string{"team": strings.Repeat("a", 64)}
			}), "podTemplate.labels: a key has at most 317 characters",
		},
		"an annotation that is too long": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.Drain.PodTemplate.Annotations = map[string]string{"note": strings.Repeat("a", 4097)}
			}), "podTemplate.annotations: a key has at most 317 characters",
		},
		"too many annotations": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.Drain.PodTemplate.Annotations = map[string]string{}
				for i := range 65 {
					s.Drain.PodTemplate.Annotations[fmt.Sprint("note-", i)] = ""
				}
			}), "at most 64",
		},
		"a member's label that is too long": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.PodTemplate.Labels = map[string]string{"team": strings.Repeat("a", 64)}
			}), "podTemplate.labels: a key has at most 317 characters",
		},
		"a member's annotation that is too long": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.PodTemplate.Annotations = map[string]string{"note": strings.Repeat("a", 4097)}
			}), "podTemplate.annotations: a key has at most 317 characters",
		},
		"too many labels of members": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.PodTemplate.Labels = map[string]string{}
				for i := range 65 {
					s.PodTemplate.Labels[fmt.Sprint("label-", i)] = ""
				}
			}), "at most 64",
		},
		"negative memory": {cluster().Memory("-64Mi"), inMiB},
		"items of more than half of memory": {
			with(func(s *cachev1alpha1.MemcachedSpec) { s.MaxItemSize = quantity("33Mi") }), itemSize,
		},
		"an exporter on memcached's port": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Exporter = &cachev1alpha1.ExporterSpec{Port: 11211}
		}), "exporter.port must not be containerPort"},
		"routers without storage": {cluster().With(routed), "router needs storage"},
		"no router": {cluster().Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](0)}
		}), "greater than or equal to 1"},
		"discovery without storage": {cluster().With(discovers), "discovery needs storage"},
		"discovery on memcached's port": {cluster().Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Discovery = &cachev1alpha1.DiscoverySpec{Port: 11211}
		}), "discovery.port must not be containerPort"},
		"discovery on the exporter's port": {cluster().Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Discovery, s.Exporter = &cachev1alpha1.DiscoverySpec{Port: 9150}, &cachev1alpha1.ExporterSpec{}
		}), "discovery.port must not be containerPort or exporter.port"},
		"a budget of no members":    {budget(intstr.FromInt32(0)), disruptions},
		"a budget of no share":      {budget(intstr.FromString("0%")), disruptions},
		"a budget of more than all": {budget(intstr.FromString("101%")), disruptions},
		"a budget in words":         {budget(intstr.FromString("two")), disruptions},
		"an item of 1000000 bytes":  {with(func(s *cachev1alpha1.MemcachedSpec) { s.MaxItemSize = quantity("1000000") }), "maxItemSize must be a multiple of 512Ki"},
		"items of no size":          {with(func(s *cachev1alpha1.MemcachedSpec) { s.MaxItemSize = quantity("0") }), itemSize},
		"a fraction of an item":     {with(func(s *cachev1alpha1.MemcachedSpec) { s.MaxItemSize = quantity("2048500m") }), itemSize},
		"too many threads":          {with(func(s *cachev1alpha1.MemcachedSpec) { s.Threads = ptr.To[int32](129) }), "less than or equal to 128"},
		"extstore with storage": {
			cluster().Storage("128Mi").ExtraArgs("-o", "ext_path=/data/ext:64M"), "ext_path (extstore) can't be combined with storage",
		},
		"too many arguments":      {cluster().ExtraArgs(strings.Split(strings.Repeat("-v ", 33), " ")...), "at most 32 items"},
		"-e":                      {cluster().ExtraArgs("-e", "/elsewhere"), flags},
		"-m":                      {cluster().ExtraArgs("-m", "1024"), flags},
		"-m1024":                  {cluster().ExtraArgs("-m1024"), flags},
		"-vm":                     {cluster().ExtraArgs("-vm", "1024"), flags},
		"-vvvd":                   {cluster().ExtraArgs("-vvvd"), flags},
		"-U":                      {cluster().ExtraArgs("-U", "11211"), flags},
		"-s":                      {cluster().ExtraArgs("-s", "/tmp/socket"), flags},
		"-h":                      {cluster().ExtraArgs("-h"), flags},
		"--memory-limit=1024":     {cluster().ExtraArgs("--memory-limit=1024"), flags},
		"--memory-limit 1024":     {cluster().ExtraArgs("--memory-limit", "1024"), flags},
		"--memory-file":           {cluster().ExtraArgs("--memory-file=/elsewhere"), flags},
		"--port":                  {cluster().ExtraArgs("--port=1"), flags},
		"--max-item-size":         {cluster().ExtraArgs("--max-item-size=1m"), flags},
		"--daemon":                {cluster().ExtraArgs("--daemon"), flags},
		"an abbreviation":         {cluster().ExtraArgs("--memory-l=1024"), flags},
		"another abbreviation":    {cluster().ExtraArgs("--daem"), flags},
		"the end of all flags":    {cluster().ExtraArgs("--"), flags},
		"after TLS":               {cluster().ExtraArgs("-Zm", "1024"), flags},
		"a value that is missing": {cluster().ExtraArgs("-v", "-o"), lacking},
		"a long one's value":      {cluster().ExtraArgs("--extended"), lacking},
		"SASL with storage":       {cluster().Storage("128Mi").ExtraArgs("-vS"), plain},
		"-Z":                      {cluster().ExtraArgs("-Z"), useTLS},
		"-vZ":                     {cluster().ExtraArgs("-vZ"), useTLS},
		"--enable-ssl":            {cluster().ExtraArgs("--enable-ssl"), useTLS},
		"a certificate":           {cluster().ExtraArgs("-o", "modern,ssl_chain_cert=/certificate"), useTLS},
		"a key":                   {cluster().ExtraArgs("-ossl_key=/key"), useTLS},
		"clients' certificates":   {cluster().ExtraArgs("--extended=ssl_verify_mode=2"), useTLS},
		"-Y":                      {cluster().ExtraArgs("-Y", "/users"), useAuth},
		"--auth-file":             {cluster().ExtraArgs("--auth-file=/users"), useAuth},
		"an exporter that can't log in": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Exporter, s.Auth = &cachev1alpha1.ExporterSpec{}, &cachev1alpha1.AuthSpec{SecretName: "logins"}
		}), "exporter can't be combined with auth"},
		"TLS without a Secret": {with(func(s *cachev1alpha1.MemcachedSpec) { s.TLS = &cachev1alpha1.TLSSpec{} }), "spec.tls.secretName"},
		"clients asked by half": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.TLS = &cachev1alpha1.TLSSpec{SecretName: "certificate", ClientAuth: "Requested"}
		}), "Unsupported value"},
		"binary protocol with storage":    {cluster().Storage("128Mi").ExtraArgs("-B", "binary"), plain},
		"a flag after others":             {cluster().ExtraArgs("-v", "-o", "modern", "-p", "1"), flags},
		"a name with a dot":               {apitest.MakeMemcached("cache.one"), nameRule},
		"a name that begins with a digit": {apitest.MakeMemcached("1cache"), nameRule},
		"a name of 53 characters":         {apitest.MakeMemcached(strings.Repeat("a", 53)), nameRule},
		"no parallelism at all":           {cluster().Parallelism(-1), "greater than or equal to 1"},
		"an unknown policy":               {cluster().Policy("Shred"), "Unsupported value"},
		"an unknown policy for deletion":  {cluster().WhenDeleted("Shred"), "Unsupported value"},
		"no items per second": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.Drain.RateLimit = &cachev1alpha1.RateLimit{ItemsPerSecond: ptr.To[int64](0)}
			}), "greater than or equal to 1",
		},
		"no bytes per second": {
			with(func(s *cachev1alpha1.MemcachedSpec) {
				s.Drain.RateLimit = &cachev1alpha1.RateLimit{BytesPerSecond: quantity("1")}
			}), "drain.rateLimit.bytesPerSecond must be",
		},
		"skip what expired": {with(func(s *cachev1alpha1.MemcachedSpec) { s.Drain.SkipExpiringWithin = duration(-time.Second) }), "drain.skipExpiringWithin must be from 0s"},
		"no patience left":  {with(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Patience = duration(-time.Second) }), "routing.patience must be from 0s"},
		"endless patience":  {with(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Patience = duration(25 * time.Hour) }), "routing.patience must be from 0s"},
		"no time to drain":  {with(func(s *cachev1alpha1.MemcachedSpec) { s.Drain.ActiveDeadline = duration(29 * time.Second) }), "drain.activeDeadline must be from 30s"},
		"a drain for ever":  {with(func(s *cachev1alpha1.MemcachedSpec) { s.Drain.ActiveDeadline = duration(8761 * time.Hour) }), "drain.activeDeadline must be from 30s"},
		"endless scrapes": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Exporter = &cachev1alpha1.ExporterSpec{ServiceMonitor: &cachev1alpha1.ServiceMonitorSpec{Interval: duration(0)}}
		}), "exporter.serviceMonitor.interval must be from 1s"},
		"skip everything": {with(func(s *cachev1alpha1.MemcachedSpec) { s.Drain.SkipExpiringWithin = duration(721 * time.Hour) }), "drain.skipExpiringWithin must be from 0s"},
	} {
		t.Run(what, func(t *testing.T) {
			object := test.object.Namespace(w.namespace).Obj()
			err := admin.Create(t.Context(), object, client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want a refusal that says %q, got %v", test.want, err)
			}
		})
	}
}

func TestSpecThatCanWorkIsAccepted(t *testing.T) {
	w := newNamespace(t)
	cluster := func() *apitest.MemcachedBuilder { return apitest.MakeMemcached(name) }
	for what, object := range map[string]*apitest.MemcachedBuilder{
		"the largest": cluster().Size(512),
		"hibernated":  cluster().Size(0).Storage("65Mi"),
		"small items": cluster().With(func(s *cachev1alpha1.MemcachedSpec) {
			s.MaxItemSize, s.ExtraArgs = quantity("1Ki"), []string{"-o", "slab_chunk_max=1k"}
		}),
		"the least memory":         cluster().Memory("8Mi").With(func(s *cachev1alpha1.MemcachedSpec) { s.MaxItemSize = quantity("4Mi") }),
		"the least with storage":   cluster().Memory("64Mi").Storage("1Gi"),
		"the least with -L":        cluster().Memory("64Mi").ExtraArgs("-L"),
		"memory in odd words":      cluster().Memory("0.5Gi").Storage("1G"),
		"memory as a plain number": cluster().Memory("67108864"),
		"a lot of memory":          cluster().Memory("512Gi").Storage("1Ti"),
		"every field":              cluster().EveryField().Storage("1Gi"),
		"a name of 52 characters":  apitest.MakeMemcached(strings.Repeat("a", 52)),
		"a budget of half": cluster().With(func(s *cachev1alpha1.MemcachedSpec) {
			s.PodDisruptionBudget.MaxUnavailable = ptr.To(intstr.FromString("50%"))
		}),
		"-v":                       cluster().ExtraArgs("-vvv"),
		"-o":                       cluster().ExtraArgs("-o", "hash_algorithm=xxh3,no_lru_maintainer"),
		"a value like a flag's":    cluster().ExtraArgs("-o", "slab_chunk_max=512k"),
		"-f and -n":                cluster().ExtraArgs("-f", "1.25", "-n", "48"),
		"-R and -b":                cluster().ExtraArgs("-R40", "-b", "2048"),
		"-F and -C":                cluster().ExtraArgs("-F", "-C"),
		"SASL without storage":     cluster().ExtraArgs("-S"),
		"ciphers":                  cluster().ExtraArgs("-o", "ssl_ciphers=HIGH", "--extended=ssl_min_version=3"),
		"long ones":                cluster().ExtraArgs("--disable-cas", "--max-reqs-per-event=40", "--extended=modern"),
		"extstore without storage": cluster().ExtraArgs("-o", "ext_path=/dev/shm/ext:64M"),
		"a prefix that isn't hashed": cluster().With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Routing = cachev1alpha1.RoutingSpec{Client: "pymemcache-bytes", KeyPrefix: "shop:", ServerName: "cache-{ordinal}.example.com.:11211"}
		}),
		"as many arguments as may be": cluster().ExtraArgs(strings.Fields(strings.Repeat("-v ", 32))...),
	} {
		t.Run(what, func(t *testing.T) {
			if err := admin.Create(t.Context(), object.Namespace(w.namespace).Obj(), client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatCannotChangeLaterIsRefusedWithASentence(t *testing.T) {
	w := newNamespace(t)
	plain := apitest.MakeMemcached("plain").Obj()
	stored := apitest.MakeMemcached("stored").Storage("128Mi").Obj()
	classed := apitest.MakeMemcached("classed").Storage("128Mi").With(withClass).Obj()
	large, unsized := apitest.MakeMemcached("large").Storage("1Gi").Obj(), apitest.MakeMemcached("unsized").Storage("0").Obj()
	for _, m := range []*cachev1alpha1.Memcached{plain, stored, classed, large, unsized} {
		w.create(m)
	}
	const (
		addOrRemove = "storage can't be added to or removed from a cluster"
		size        = "storage.size can't shrink"
		class       = "storage.storageClassName can't be changed"
	)
	for what, test := range map[string]struct {
		object *cachev1alpha1.Memcached
		patch  string
		want   string
	}{
		"storage added":         {plain, `{"spec":{"storage":{"size":"128Mi"}}}`, addOrRemove},
		"storage removed":       {stored, `{"spec":{"storage":null}}`, addOrRemove},
		"storage grown":         {stored, `{"spec":{"storage":{"size":"256Mi"}}}`, ""},
		"storage shrunk":        {stored, `{"spec":{"storage":{"size":"100Mi"}}}`, size},
		"a class added":         {stored, `{"spec":{"storage":{"storageClassName":"player"}}}`, class},
		"the class changed":     {classed, `{"spec":{"storage":{"storageClassName":"another"}}}`, class},
		"the class removed":     {classed, `{"spec":{"storage":{"storageClassName":null}}}`, class},
		"memory over storage":   {stored, `{"spec":{"memory":"200Mi"}}`, "storage.size must be larger than memory"},
		"the spec taken away":   {stored, `{"spec":null}`, "spec"},
		"memory within":         {stored, `{"spec":{"memory":"100Mi"}}`, ""},
		"storage of no size":    {stored, `{"spec":{"storage":{"size":"0"}}}`, "storage.size must be larger than memory"},
		"a large size left out": {large, `{"spec":{"storage":{"size":null}}}`, size},
		"less than memory gave": {unsized, `{"spec":{"storage":{"size":"150Mi"}}}`, size},
		"as memory gave":        {unsized, `{"spec":{"storage":{"size":"200Mi"}}}`, ""},
		"the size left out":     {stored, `{"spec":{"storage":{"size":null}}}`, ""},
		"the size in words":     {stored, `{"spec":{"storage":{"size":"0.125Gi"}}}`, ""},
		"another storage mode":  {stored, `{"spec":{"storage":{"mode":"Mapped"}}}`, "storage.mode can't be changed"},
		"the mode left out":     {stored, `{"spec":{"storage":{"mode":null}}}`, ""},
		"another client":        {stored, `{"spec":{"routing":{"client":"gomemcache"}}}`, ""},
		"a plain cluster goes":  {plain, `{"spec":{"size":5,"memory":"128Mi"}}`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			err := admin.Patch(t.Context(), test.object.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(test.patch)), client.DryRunAll)
			if got := fmt.Sprint(err); test.want != "" && !strings.Contains(got, test.want) || test.want == "" && err != nil {
				t.Errorf("want %q, got %v", test.want, err)
			}
		})
	}
}

// The scale subresource has the same limits.
func TestScaleBeyondTheLimitIsRefused(t *testing.T) {
	w := newNamespace(t)
	w.create(apitest.MakeMemcached(name).Obj())
	if err := w.tryScale(513); err == nil {
		t.Error("scaled to 513")
	}
	if err := w.tryScale(512); err != nil {
		t.Error(err)
	}
}

// People must be able to change a stored cluster that breaks a later rule.
func TestAClusterOfLittleMemoryFromEarlierCanStillBeChanged(t *testing.T) {
	w := newNamespace(t)
	const rule = "memory must be 64Mi at least"
	crd := otherCRD(t, "earlier.example.com")
	today := asRules(t, crd)
	var before []any
	for _, r := range today {
		if !strings.Contains(r.(map[string]any)["message"].(string), rule) {
			before = append(before, r)
		}
	}
	if len(before) != len(today)-1 {
		t.Fatalf("%d of %d rules are about that", len(today)-len(before), len(today))
	}
	setRules(t, crd, before)
	if err := admin.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), crd) })
	stored := asOfBefore(w, "stored", map[string]any{"size": int64(1), "memory": "32Mi", "storage": map[string]any{"size": "1Gi"}})
	plain := asOfBefore(w, "plain", map[string]any{"size": int64(1), "memory": "8Mi"})
	for _, o := range []client.Object{stored, plain} {
		w.eventually("an object of before", func() error { return admin.Create(t.Context(), o.DeepCopyObject().(client.Object)) })
	}
	setRules(t, crd, today)
	crd.SetResourceVersion("") // Kubernetes writes the CRD's status
	if err := admin.Patch(t.Context(), crd, client.Merge); err != nil {
		t.Fatal(err)
	}
	w.eventually("the rule in force", func() error {
		another := asOfBefore(w, "another", map[string]any{"memory": "32Mi", "storage": map[string]any{"size": "1Gi"}})
		if err := admin.Create(t.Context(), another, client.DryRunAll); err == nil || !strings.Contains(err.Error(), rule) {
			return fmt.Errorf("got %q", fmt.Sprint(err))
		}
		return nil
	})
	for what, test := range map[string]struct {
		object *unstructured.Unstructured
		patch  string
		want   string
	}{
		"another size":        {stored, `{"spec":{"size":3}}`, ""},
		"the same in words":   {stored, `{"spec":{"memory":"33554432"}}`, ""},
		"more, and enough":    {stored, `{"spec":{"memory":"64Mi"}}`, ""},
		"more, and no enough": {stored, `{"spec":{"memory":"40Mi"}}`, ""},
		"less":                {stored, `{"spec":{"memory":"31Mi"}}`, rule},
		"-L from now on":      {plain, `{"spec":{"extraArgs":["-L"]}}`, rule},
		"another size, plain": {plain, `{"spec":{"size":3}}`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			err := admin.Patch(t.Context(), test.object.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(test.patch)), client.DryRunAll)
			if got := fmt.Sprint(err); test.want != "" && !strings.Contains(got, test.want) || test.want == "" && err != nil {
				t.Errorf("want %q, got %v", test.want, err)
			}
		})
	}
}

// otherCRD returns the Memcached's CRD, with another group.
func otherCRD(t *testing.T, group string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("../../config/crd/bases/cache.example.com_memcacheds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		t.Fatal(err)
	}
	crd.SetName("memcacheds." + group)
	if err := unstructured.SetNestedField(crd.Object, group, "spec", "group"); err != nil {
		t.Fatal(err)
	}
	return crd
}

func asOfBefore(w *world, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion("earlier.example.com/v1alpha1")
	o.SetKind("Memcached")
	o.SetName(name)
	o.SetNamespace(w.namespace)
	return o
}

// specSchema returns that of the CRD's one version.
func specSchema(t *testing.T, crd *unstructured.Unstructured) map[string]any {
	t.Helper()
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || len(versions) != 1 {
		t.Fatalf("%d versions, %v", len(versions), err)
	}
	version := crd.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	return version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)["spec"].(map[string]any)
}

const rules = "x-kubernetes-validations"

func asRules(t *testing.T, crd *unstructured.Unstructured) []any {
	return specSchema(t, crd)[rules].([]any)
}

func setRules(t *testing.T, crd *unstructured.Unstructured, to []any) { specSchema(t, crd)[rules] = to }
