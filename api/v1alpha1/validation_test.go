package v1alpha1_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

func quantity(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func TestSpecThatCannotWorkIsRefusedWithASentence(t *testing.T) {
	server := theAPIServer(t)
	cluster := func() *apitest.MemcachedBuilder { return apitest.MakeMemcached("cache") }
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
		lacking  = "extraArgs must not end with a flag that lacks its value"
		plain    = "the drainer, which moves the items of leaving members and asks for metrics, speaks memcached's text protocol"
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
		"metrics on memcached's port": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Metrics = &cachev1alpha1.MetricsSpec{Port: 11211}
		}), "metrics.port must not be containerPort"},
		"routers without storage": {with(func(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{} }), "router needs storage"},
		"no router": {cluster().Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](0)}
		}), "greater than or equal to 1"},
		"discovery without storage": {with(func(s *cachev1alpha1.MemcachedSpec) { s.Discovery = &cachev1alpha1.DiscoverySpec{} }), "discovery needs storage"},
		"discovery on memcached's port": {cluster().Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Discovery = &cachev1alpha1.DiscoverySpec{Port: 11211}
		}), "discovery.port must not be containerPort"},
		"discovery on the port of metrics": {cluster().Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Discovery, s.Metrics = &cachev1alpha1.DiscoverySpec{Port: 9150}, &cachev1alpha1.MetricsSpec{}
		}), "discovery.port must not be containerPort or metrics.port"},
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
		"metrics of a memcached that speaks SASL": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Metrics, s.ExtraArgs = &cachev1alpha1.MetricsSpec{}, []string{"-S"}
		}), "can't be combined with storage or metrics"},
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
			}), "rateLimit.bytesPerSecond must be",
		},
		"skip what expired": {with(func(s *cachev1alpha1.MemcachedSpec) { s.Drain.SkipExpiringWithin = duration(-time.Second) }), "drain.skipExpiringWithin must be from 0s"},
		"no patience left":  {with(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Patience = duration(-time.Second) }), "routing.patience must be from 0s"},
		"endless patience":  {with(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Patience = duration(25 * time.Hour) }), "routing.patience must be from 0s"},
		"no time to drain":  {with(func(s *cachev1alpha1.MemcachedSpec) { s.Drain.ActiveDeadline = duration(29 * time.Second) }), "drain.activeDeadline must be from 30s"},
		"a drain for ever":  {with(func(s *cachev1alpha1.MemcachedSpec) { s.Drain.ActiveDeadline = duration(8761 * time.Hour) }), "drain.activeDeadline must be from 30s"},
		"endless scrapes": {with(func(s *cachev1alpha1.MemcachedSpec) {
			s.Metrics = &cachev1alpha1.MetricsSpec{ServiceMonitor: &cachev1alpha1.ServiceMonitorSpec{Interval: duration(0)}}
		}), "metrics.serviceMonitor.interval must be from 1s"},
		"skip everything": {with(func(s *cachev1alpha1.MemcachedSpec) { s.Drain.SkipExpiringWithin = duration(721 * time.Hour) }), "drain.skipExpiringWithin must be from 0s"},
	} {
		t.Run(what, func(t *testing.T) {
			server.wants(t, server.of(t, test.object.Obj()), nil, test.want)
		})
	}
}

func TestAMemcachedWithoutASpecIsRefused(t *testing.T) {
	server := theAPIServer(t)
	server.wants(t, server.parse(t, "apiVersion: cache.example.com/v1alpha1\nkind: Memcached\nmetadata: {name: cache}"), nil, "spec: Required value")
}

func TestSpecThatCanWorkIsAccepted(t *testing.T) {
	server := theAPIServer(t)
	cluster := func() *apitest.MemcachedBuilder { return apitest.MakeMemcached("cache") }
	for what, object := range map[string]*apitest.MemcachedBuilder{
		"the largest": cluster().Size(512),
		"hibernated":  cluster().Size(0).Storage("65Mi"),
		"small items": cluster().With(func(s *cachev1alpha1.MemcachedSpec) {
			s.MaxItemSize, s.ExtraArgs = quantity("1Ki"), []string{"-o", "slab_chunk_max=1024"}
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
		"a value like a flag's":    cluster().ExtraArgs("-o", "slab_chunk_max=512"),
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
			server.wants(t, server.of(t, object.Obj()), nil, "")
		})
	}
}

func TestAChangeOfAFixedFieldIsRefusedWithASentence(t *testing.T) {
	server := theAPIServer(t)
	const (
		plain   = `{}`
		stored  = `{storage: {size: 128Mi}, routing: {client: dalli}}`
		classed = `{storage: {size: 128Mi, storageClassName: player}, routing: {client: dalli}}`
		large   = `{storage: {size: 1Gi}, routing: {client: dalli}}`
		unsized = `{storage: {}, routing: {client: dalli}}`
	)
	const (
		addOrRemove = "storage can't be added to or removed from a cluster"
		size        = "storage.size can't shrink"
		class       = "storage.storageClassName can't be changed"
	)
	for what, test := range map[string]struct {
		before string
		patch  string
		want   string
	}{
		"storage added":         {plain, `{"storage":{"size":"128Mi"}}`, addOrRemove},
		"storage removed":       {stored, `{"storage":null}`, addOrRemove},
		"storage grown":         {stored, `{"storage":{"size":"256Mi"}}`, ""},
		"storage shrunk":        {stored, `{"storage":{"size":"100Mi"}}`, size},
		"a class added":         {stored, `{"storage":{"storageClassName":"player"}}`, class},
		"the class changed":     {classed, `{"storage":{"storageClassName":"another"}}`, class},
		"the class removed":     {classed, `{"storage":{"storageClassName":null}}`, class},
		"memory over storage":   {stored, `{"memory":"200Mi"}`, "storage.size must be larger than memory"},
		"memory within":         {stored, `{"memory":"100Mi"}`, ""},
		"storage of no size":    {stored, `{"storage":{"size":"0"}}`, "storage.size must be larger than memory"},
		"a large size left out": {large, `{"storage":{"size":null}}`, size},
		"less than memory gave": {unsized, `{"storage":{"size":"150Mi"}}`, size},
		"as memory gave":        {unsized, `{"storage":{"size":"200Mi"}}`, ""},
		"the size left out":     {stored, `{"storage":{"size":null}}`, ""},
		"the size in words":     {stored, `{"storage":{"size":"0.125Gi"}}`, ""},
		"another storage mode":  {stored, `{"storage":{"mode":"Mapped"}}`, "storage.mode can't be changed"},
		"the mode left out":     {stored, `{"storage":{"mode":null}}`, ""},
		"another client":        {stored, `{"routing":{"client":"gomemcache"}}`, ""},
		"a plain cluster goes":  {plain, `{"size":5,"memory":"128Mi"}`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			server.wants(t, server.named(t, "cache", merged(t, test.before, test.patch)), server.named(t, "cache", test.before), test.want)
		})
	}
}

// merged is the spec after a merge patch.
func merged(t *testing.T, spec, patch string) string {
	t.Helper()
	var into, from map[string]any
	err := errors.Join(yaml.Unmarshal([]byte(spec), &into), yaml.Unmarshal([]byte(patch), &from))
	merge(into, from)
	text, _ := yaml.Marshal(into)
	if err != nil {
		t.Fatal(err)
	}
	return inBlocks(string(text))
}

func merge(into, from map[string]any) {
	for name, value := range from {
		switch value := value.(type) {
		case nil:
			delete(into, name)
		case map[string]any:
			inner, is := into[name].(map[string]any)
			if !is {
				inner = map[string]any{}
			}
			merge(inner, value)
			into[name] = inner
		default:
			into[name] = value
		}
	}
}
