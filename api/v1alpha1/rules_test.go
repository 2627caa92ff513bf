package v1alpha1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// A rule is one of CEL's: where it stands in an object, and how its message begins. spec breaks it,
// and no other rule.
type rule struct{ at, says, spec string }

// rules are all rules of the CRD without those of templateRules and serviceRules, which stand at several
// places.
var rules = []rule{
	{"", "podTemplate.volumes must not have a claim of the members", `{podTemplate: {volumes: [{name: own, persistentVolumeClaim: {claimName: data-cache-3}}]}}`},

	{"spec", "memory must be a whole number of MiB", `{memory: 100M}`},
	{"spec", "memory must be 64Mi at least with storage", `{memory: 63Mi, storage: {}, routing: {client: dalli}}`},
	{"spec", "storage.size must be larger than memory", `{memory: 1Gi, storage: {size: 1Gi}, routing: {client: dalli}}`},
	{"spec", "resources.limits.memory must be larger than memory", `{memory: 64Mi, resources: {limits: {memory: 64Mi}}}`},
	{"spec", "maxItemSize must be a whole number of bytes", `{memory: 64Mi, maxItemSize: 33Mi}`},
	{"spec", "maxItemSize must be a multiple of 512Ki", `{maxItemSize: "1000000"}`},
	{"spec", "extraArgs: SASL (-S) and another protocol (-B) can't be combined with storage", `{storage: {}, routing: {client: dalli}, extraArgs: [-S]}`},
	{"spec", "extraArgs: ext_path (extstore) can't be combined with storage", `{storage: {}, routing: {client: dalli}, extraArgs: [-o, "ext_path=/dev/shm/ext:64M"]}`},
	{"spec", "extraArgs: ext_path (extstore) must be below /dev/shm/", `{extraArgs: [-o, "ext_path=/tmp/ext:64M"]}`},
	{"spec", "extraArgs: no_modern, or no_slab_reassign together with", `{storage: {}, routing: {client: dalli}, extraArgs: [-o, no_modern]}`},
	{"spec", "metrics.port must not be containerPort", `{metrics: {port: 11211}}`},
	{"spec", "discovery needs storage", `{discovery: {}}`},
	{"spec", "discovery.port must not be containerPort or metrics.port", `{storage: {}, routing: {client: dalli}, metrics: {}, discovery: {port: 9150}}`},
	{"spec", "routing.addresses: Stable needs storage", `{routing: {addresses: Stable}}`},
	{"spec", "rollout: Moved needs storage", `{rollout: Moved}`},
	{"spec", "podDisruptionBudget.evictions: StepOut needs router.exclusive", `{storage: {}, router: {}, podDisruptionBudget: {evictions: StepOut}}`},
	{"spec.podDisruptionBudget", "podDisruptionBudget.evictions: StepOut needs the budget", `{storage: {}, router: {exclusive: true}, podDisruptionBudget: {evictions: StepOut, maxUnavailable: 1}}`},
	{"spec", "router needs storage", `{router: {}}`},
	{"spec", "drain.policy Retain keeps volumes", `{storage: {mode: Memory}, router: {}, drain: {policy: Retain}}`},
	{"spec.storage", "storage.size and storageClassName are for volumes", `{storage: {mode: Memory, size: 1Gi}, router: {}}`},
	{"spec", "routing.client is needed with storage and without router", `{storage: {}}`},
	{"spec", "podTemplate: a container's port must not be containerPort, metrics.port or discovery.port", `{podTemplate: {containers: [{name: own, ports: [{containerPort: 11211}]}]}}`},
	{"spec", "router.podTemplate: a container's port must not be containerPort", `{storage: {}, router: {podTemplate: {containers: [{name: own, ports: [{containerPort: 11211}]}]}}}`},

	{"spec.extraArgs", "extraArgs must not have a flag that the operator sets itself", `{extraArgs: [-m, "1024"]}`},
	{"spec.extraArgs", "extraArgs must not turn TLS on", `{extraArgs: [-Z]}`},
	{"spec.extraArgs", "extraArgs must not name a file with logins", `{extraArgs: [-Y, /logins]}`},
	{"spec.extraArgs", "extraArgs: memcached never starts with this, or soon ends", `{extraArgs: [-f, "1"]}`},
	{"spec.extraArgs", "extraArgs: memcached never starts with this: hot_lru_pct and warm_lru_pct", `{extraArgs: [-o, "hot_lru_pct=41"]}`},
	{"spec.extraArgs", "extraArgs must not end with a flag that lacks its value", `{extraArgs: [-v, -o]}`},
	{"spec.podDisruptionBudget.maxUnavailable", "podDisruptionBudget.maxUnavailable must be a number of members", `{podDisruptionBudget: {maxUnavailable: 0%}}`},
	{"spec.metrics.serviceMonitor.interval", "metrics.serviceMonitor.interval must be from 1s to 24h", `{metrics: {serviceMonitor: {interval: 1d}}}`},
	{"spec.routing", "routing.keyPrefix is for libmemcached and pymemcache", `{routing: {client: gomemcache, keyPrefix: "shop:"}}`},
	{"spec.routing.patience", "routing.patience must be from 0s to 24h", `{routing: {patience: 1d}}`},
	{"spec.drain.activeDeadline", "drain.activeDeadline must be from 30s to 8760h", `{drain: {activeDeadline: 1d}}`},
	{"spec.drain.skipExpiringWithin", "drain.skipExpiringWithin must be from 0s to 720h", `{drain: {skipExpiringWithin: 1d}}`},
	{"spec.drain.rateLimit.bytesPerSecond", "rateLimit.bytesPerSecond must be a whole number of bytes", `{drain: {rateLimit: {bytesPerSecond: "1"}}}`},

	{"", "warmFrom.memcached must be another Memcached", `{storage: {}, router: {}, warmFrom: {memcached: cache}}`},
	{"spec", "warmFrom needs storage", `{warmFrom: {memcached: old}}`},
	{"spec", "warmFrom.onMiss needs router", `{storage: {}, routing: {client: dalli}, warmFrom: {memcached: old, onMiss: true}}`},
	{"spec.warmFrom", "warmFrom must have exactly one of", `{storage: {}, router: {}, warmFrom: {}}`},
	{"spec.warmFrom", "warmFrom.routing, tls and auth are for servers and discovery", `{storage: {}, router: {}, warmFrom: {memcached: old, tls: {secretName: old}}}`},
	{"spec.warmFrom", "warmFrom.routing is needed with discovery", `{storage: {}, router: {}, warmFrom: {servers: ["a:11211", "b:11211"]}}`},
	{"spec.warmFrom", "warmFrom.onMiss needs a source that answers", `{storage: {}, router: {}, warmFrom: {volumes: {selector: {matchLabels: {from: backup}}}, onMiss: true}}`},
	{"spec.warmFrom.volumes.selector", "warmFrom.volumes.selector must not be empty", `{storage: {}, router: {}, warmFrom: {volumes: {selector: {}}}}`},
	{"spec.warmFrom.routing", "warmFrom.routing.keyPrefix is for libmemcached and pymemcache", `{storage: {}, router: {}, warmFrom: {discovery: "a:11211", routing: {client: dalli, keyPrefix: "shop:"}}}`},
	{"spec.warmFrom.patience", "warmFrom.patience must be from 0s to 2400h", `{storage: {}, router: {}, warmFrom: {memcached: old, patience: 1d}}`},
	{"spec.warmFrom.rateLimit.bytesPerSecond", "rateLimit.bytesPerSecond must be a whole number of bytes", `{storage: {}, router: {}, warmFrom: {memcached: old, rateLimit: {bytesPerSecond: "1"}}}`},
}

// templateRules stand at the podTemplate of members, of routers and of drainers.
var templateRules = []rule{
	{"labels", "podTemplate.labels: a key has at most 317 characters", `{labels: {team: ` + strings.Repeat("a", 64) + `}}`},
	{"labels", "podTemplate.labels must not have keys of cache.example.com", `{labels: {cache.example.com/cluster: other}}`},
	{"annotations", "podTemplate.annotations: a key has at most 317 characters", `{annotations: {note: ` + strings.Repeat("a", 4097) + `}}`},
	{"annotations", "podTemplate.annotations must not have keys of cache.example.com", `{annotations: {cache.example.com/target: "1"}}`},
	{"volumes", "podTemplate.volumes must not have a name of the operator's own volumes", `{volumes: [{name: data}]}`},
	{"volumeMounts", "podTemplate.volumeMounts must not mount the operator's own volumes", `{volumeMounts: [{name: data, mountPath: /elsewhere}]}`},
	{"volumeMounts", "podTemplate.volumeMounts: mountPath must be an absolute path", `{volumeMounts: [{name: own, mountPath: /own/../data}]}`},
	{"volumeMounts", "podTemplate.volumeMounts: mountPath must not be one of the operator's own", `{volumeMounts: [{name: own, mountPath: /data/own}]}`},
	{"containers", "podTemplate.containers must not have a name of the operator's own containers", `{containers: [{name: memcached}]}`},
	{"containers", "podTemplate.containers: a port must not have a name of the operator's own", `{containers: [{name: own, ports: [{name: metrics, containerPort: 8080}]}]}`},
	{"containers", "podTemplate.containers must not mount the operator's own volumes", `{containers: [{name: own, volumeMounts: [{name: data, mountPath: /own}]}]}`},
	{"initContainers", "podTemplate.initContainers must not have a name of the operator's own containers", `{initContainers: [{name: drainer}]}`},
	{"initContainers", "podTemplate.initContainers: a port must not have a name of the operator's own", `{initContainers: [{name: own, ports: [{name: metrics, containerPort: 8080}]}]}`},
	{"initContainers", "podTemplate.initContainers must not mount the operator's own volumes", `{initContainers: [{name: own, volumeMounts: [{name: data, mountPath: /own}]}]}`},
}

// serviceRules stand at the service of members and of routers.
var serviceRules = []rule{
	{"labels", "service.labels: a key has at most 317 characters", `{labels: {team: ` + strings.Repeat("a", 64) + `}}`},
	{"annotations", "service.annotations: a key has at most 317 characters", `{annotations: {cache.example.com/version: "1"}}`},
}

// changeRules are about a change from the spec before.
var changeRules = []struct {
	rule
	before string
}{
	{rule{"spec", "storage can't be added to or removed from a cluster", `{storage: {}, routing: {client: dalli}}`}, `{}`},
	{rule{"spec", "storage.size can't shrink, nor by leaving it out", `{storage: {}, routing: {client: dalli}}`}, `{storage: {size: 1Gi}, routing: {client: dalli}}`},
	{rule{"spec.storage", "storage.mode can't be changed", `{storage: {mode: Mapped}, routing: {client: dalli}}`}, `{storage: {mode: Saved}, routing: {client: dalli}}`},
	{rule{"spec.storage", "storage.size can't shrink", `{storage: {size: 512Mi}, routing: {client: dalli}}`}, `{storage: {size: 1Gi}, routing: {client: dalli}}`},
	{rule{"spec.storage", "storage.storageClassName can't be changed", `{storage: {storageClassName: fast}, routing: {client: dalli}}`}, `{storage: {}, routing: {client: dalli}}`},
	{rule{"spec.router", "exclusive can't be changed while there are routers", `{storage: {}, router: {exclusive: true}}`}, `{storage: {}, router: {}}`},
}

// atEachPlace has the rules that stand at several places once for each place.
func atEachPlace() (all []rule) {
	for place, in := range map[string]string{
		"spec.podTemplate": "{podTemplate: %s}", "spec.router.podTemplate": "{storage: {}, router: {podTemplate: %s}}", "spec.drain.podTemplate": "{drain: {podTemplate: %s}}",
	} {
		for _, r := range templateRules {
			all = append(all, rule{place + "." + r.at, r.says, fmt.Sprintf(in, r.spec)})
		}
	}
	for place, in := range map[string]string{"spec.service": "{service: %s}", "spec.router.service": "{storage: {}, router: {service: %s}}"} {
		for _, r := range serviceRules {
			all = append(all, rule{place + "." + r.at, r.says, fmt.Sprintf(in, r.spec)})
		}
	}
	return all
}

// named returns a Memcached of that name and spec.
func (s *apiServer) named(t *testing.T, name, spec string) map[string]any {
	t.Helper()
	return s.parse(t, "apiVersion: cache.example.com/v1alpha1\nkind: Memcached\nmetadata: {name: "+name+"}\nspec: "+spec)
}

// A person who breaks a rule reads one sentence, which names the field and says what to do.
func TestEachRuleOfTheAPIRefusesASpecWithItsMessage(t *testing.T) {
	left := map[place]bool{}
	for kind := range compiled {
		for _, r := range allRules(theAPIServerOf(t, kind).schema, kind, "") {
			if left[r] {
				t.Errorf("two rules at %q of a %s have one message: %s", r.at, kind, r.message)
			}
			left[r] = true
		}
	}
	if len(left) < 90 {
		t.Errorf("found %d rules only", len(left))
	}
	breaks := func(kind string, r rule, object, before map[string]any) {
		message := ""
		for known := range left {
			if known.kind == kind && known.at == r.at && strings.HasPrefix(known.message, r.says) {
				message = known.message
			}
		}
		errs := theAPIServerOf(t, kind).refuses(t, object, before)
		if len(errs) != 1 || errs[0].Detail != message || strings.TrimPrefix(errs[0].Field, "<nil>") != r.at {
			t.Errorf("%q at %q: spec %s is refused with %v", r.says, r.at, r.spec, errs)
		}
		delete(left, place{kind, r.at, message})
	}
	server, drains := theAPIServer(t), theAPIServerOf(t, "StatefulSetDrain")
	breaks("Memcached", rule{"", "the name must be a DNS label", "{}"}, server.named(t, "cache.one", "{}"), nil)
	for _, r := range slices.Concat(rules, atEachPlace()) {
		breaks("Memcached", r, server.named(t, "cache", r.spec), nil)
	}
	for _, r := range changeRules {
		breaks("Memcached", r.rule, server.named(t, "cache", r.spec), server.named(t, "cache", r.before))
	}
	breaks("StatefulSetDrain", rule{"", "the name must be a DNS label", "{}"}, drains.drainNamed(t, "queue.one", drainSpec), nil)
	for _, r := range drainRules {
		breaks("StatefulSetDrain", r, drains.drainNamed(t, "queue", r.spec), nil)
	}
	breaks("StatefulSetDrain", rule{"spec", "statefulSetName can't be changed", ""},
		drains.drainNamed(t, "queue", drainSpec), drains.drainNamed(t, "queue", `{statefulSetName: other, template: {spec: {}}}`))
	for r := range left {
		t.Errorf("no row of this file breaks the rule at %q of a %s: %s", r.at, r.kind, r.message)
	}
}

// drainSpec is the smallest spec of a StatefulSetDrain.
const drainSpec = `{statefulSetName: queue, template: {spec: {}}}`

// drainRules are those of StatefulSetDrains without those about a name and about a change.
var drainRules = []rule{
	{"spec.statefulSetName", "statefulSetName must be the name of a StatefulSet", `{statefulSetName: Queue, template: {spec: {}}}`},
	{"spec.receipt", "receipt must be a CEL expression", `{statefulSetName: queue, template: {spec: {}}, receipt: "1 == 1"}`},
	{"spec.activeDeadline", "activeDeadline must be from 30s to 8760h", `{statefulSetName: queue, template: {spec: {}}, activeDeadline: 1d}`},
	{"spec.template.metadata.labels", "template.metadata.labels: a key has at most 317 characters",
		`{statefulSetName: queue, template: {metadata: {labels: {team: ` + strings.Repeat("a", 64) + `}}, spec: {}}}`},
	{"spec.template.metadata.labels", "template.metadata.labels must not have keys of cache.example.com",
		`{statefulSetName: queue, template: {metadata: {labels: {job-name: other}}, spec: {}}}`},
	{"spec.template.metadata.annotations", "template.metadata.annotations: a key has at most 317 characters",
		`{statefulSetName: queue, template: {metadata: {annotations: {note: ` + strings.Repeat("a", 4097) + `}}, spec: {}}}`},
	{"spec.template.metadata.annotations", "template.metadata.annotations must not have keys of cache.example.com",
		`{statefulSetName: queue, template: {metadata: {annotations: {cache.example.com/container: other}}, spec: {}}}`},
}

// drainNamed returns a StatefulSetDrain of that name and spec.
func (s *apiServer) drainNamed(t *testing.T, name, spec string) map[string]any {
	t.Helper()
	return s.parse(t, "apiVersion: cache.example.com/v1alpha1\nkind: StatefulSetDrain\nmetadata: {name: "+name+"}\nspec: "+spec)
}

// place is where a rule of a kind stands, with its message.
type place struct{ kind, at, message string }

// allRules are the rules of the schema and of all below it.
func allRules(s *structuralschema.Structural, kind, at string) (all []place) {
	for _, r := range s.XValidations {
		all = append(all, place{kind, at, r.Message})
	}
	for name, property := range s.Properties {
		all = append(all, allRules(&property, kind, strings.TrimPrefix(at+"."+name, "."))...)
	}
	if s.Items != nil {
		all = append(all, allRules(s.Items, kind, at+"[]")...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		all = append(all, allRules(s.AdditionalProperties.Structural, kind, at+"[]")...)
	}
	return all
}

// A list with keys has each key once, or the StatefulSet could not be applied.
func TestAnElementTwiceInAPodTemplateIsRefused(t *testing.T) {
	t.Parallel()
	server := theAPIServer(t)
	const constraint = `{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}`
	for what, list := range map[string]string{
		"a variable":    `env: [{name: A}, {name: A}]`,
		"a pull Secret": `imagePullSecrets: [{name: a}, {name: a}]`,
		"a constraint":  `topologySpreadConstraints: [` + constraint + `, ` + constraint + `]`,
	} {
		for _, at := range []string{`podTemplate: {%s}`, `storage: {}, router: {podTemplate: {%s}}`, `drain: {podTemplate: {%s}}`} {
			spec := fmt.Sprintf(at, list)
			t.Run(what+", "+spec, func(t *testing.T) {
				server.wants(t, server.named(t, "cache", `{`+spec+`}`), nil, "Duplicate value")
			})
		}
	}
}
