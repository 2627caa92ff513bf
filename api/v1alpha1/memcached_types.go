package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MemcachedSpec is the desired state of a cluster.
//
// +kubebuilder:validation:XValidation:rule="has(self.storage) == has(oldSelf.storage)",message="storage can't be added to or removed from a cluster: create another cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || !has(self.storage.size) || quantity(string(self.storage.size)).isGreaterThan(quantity(string(self.memory)))",message="storage.size must be larger than memory: the volume has a file of that size and its metadata"
// +kubebuilder:validation:XValidation:rule="int(quantity(string(self.memory)).asApproximateFloat() + 0.5) >= 8388608 && int(quantity(string(self.memory)).asApproximateFloat() + 0.5) % 1048576 == 0 && quantity(string(self.memory)).sub(int(quantity(string(self.memory)).asApproximateFloat() + 0.5)).compareTo(quantity('0')) == 0",message="memory must be a whole number of MiB, 8Mi at least"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) && (!has(self.extraArgs) || !self.extraArgs.exists(a, a.matches('^(-[vkMrACFXSW]*L|--enable-l)'))) || quantity(string(self.memory)).compareTo(quantity('64Mi')) >= 0",message="memory must be 64Mi at least with storage, or with -L in extraArgs: memcached doesn't start with less"
// +kubebuilder:validation:XValidation:rule="!has(self.maxItemSize) || quantity(string(self.maxItemSize)).compareTo(quantity('1Ki')) >= 0 && quantity(string(self.maxItemSize)).compareTo(quantity('1Gi')) <= 0 && quantity(string(self.maxItemSize)).sub(int(quantity(string(self.maxItemSize)).asApproximateFloat() + 0.5)).compareTo(quantity('0')) == 0 && quantity(string(self.maxItemSize)).add(quantity(string(self.maxItemSize))).compareTo(quantity(string(self.memory))) <= 0",message="maxItemSize must be a whole number of bytes, 1Ki at least, at most half of memory, and 1Gi at most"
// +kubebuilder:validation:XValidation:rule="!has(self.maxItemSize) || int(quantity(string(self.maxItemSize)).asApproximateFloat() + 0.5) % 524288 == 0 || has(self.extraArgs) && self.extraArgs.exists(a, a.contains('slab_chunk_max'))",message="maxItemSize must be a multiple of 512Ki, memcached's chunk of a large item; or set slab_chunk_max in extraArgs (-o)"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) && !has(self.metrics) || !has(self.extraArgs) || self.extraArgs.all(a, !a.matches('^-[vkMrLACFXW]*[SB]') && (!a.startsWith('--') || ['--enable-sasl', '--protocol'].all(f, !f.startsWith(a.split('=')[0]))))",message="extraArgs: SASL (-S) and another protocol (-B) can't be combined with storage or metrics: the drainer, which moves the items of leaving members and asks for metrics, speaks memcached's text protocol; for logins, use auth"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || !has(self.extraArgs) || self.extraArgs.all(a, !a.contains('ext_path'))",message="extraArgs: ext_path (extstore) can't be combined with storage: memcached never restarts warm with it"
// +kubebuilder:validation:XValidation:rule="has(self.storage) || !has(self.extraArgs) || self.extraArgs.all(a, !a.contains('ext_path') || a.matches('ext_path=/dev/shm/[^/]+$') && !a.matches('ext_path.*ext_path') && !a.contains('..'))",message="extraArgs: ext_path (extstore) must be below /dev/shm/: nothing else in a member's container can be written to"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || !has(self.extraArgs) || !self.extraArgs.exists(a, a.matches('(^(-[vkMrLACSFXWZ]*o)?|[,=])(no_modern|no_slab_reassign)(=|,|$)')) || !(self.extraArgs.exists(a, a.matches('(^(-[vkMrLACSFXWZ]*o)?|[,=])slab_chunk_max=')) ? self.extraArgs.exists(a, a.matches('(^(-[vkMrLACSFXWZ]*o)?|[,=])(no_chunked_items(=|,|$)|slab_chunk_max=[ ]*[+]?0*(1024|1048576)([^0-9]|$))')) : self.extraArgs.exists(a, a.matches('(^(-[vkMrLACSFXWZ]*o)?|[,=])(no_modern|no_chunked_items)(=|,|$)')) && (!has(self.maxItemSize) || quantity(string(self.maxItemSize)).compareTo(quantity('1Mi')) <= 0))",message="extraArgs: no_modern, or no_slab_reassign together with no_chunked_items or slab_chunk_max of 1 MiB, can't be combined with storage: memcached never restarts from the file that it then has; or set slab_chunk_max to less"
// +kubebuilder:validation:XValidation:rule="has(self.storage) && self.storage.mode == 'Mapped' || !has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || quantity(string(self.resources.limits['memory'])).compareTo(quantity(string(self.memory)).add(has(self.storage) || has(self.tls) || has(self.auth) || has(self.metrics) ? 33554432 : 16777216)) >= 0",message="resources.limits.memory must be larger than memory, by 32Mi with storage (except Mapped), tls, auth or metrics, and by 16Mi otherwise: memcached and its supervisor need that besides the items"
// +kubebuilder:validation:XValidation:rule="!has(self.metrics) || self.metrics.port != self.containerPort",message="metrics.port must not be containerPort: memcached listens there"
// +kubebuilder:validation:XValidation:rule="!has(self.discovery) || has(self.storage)",message="discovery needs storage: without it, members have no names of their own; storage.mode Memory gives them names, and needs no volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.discovery) || self.discovery.port != self.containerPort && (!has(self.metrics) || self.discovery.port != self.metrics.port)",message="discovery.port must not be containerPort or metrics.port: something else listens there"
// +kubebuilder:validation:XValidation:rule="!has(self.routing) || !has(self.routing.addresses) || self.routing.addresses != 'Stable' || has(self.storage)",message="routing.addresses: Stable needs storage: without it, members have no names of their own; storage.mode Memory gives them names, and needs no volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || has(self.router) || has(self.routing) && has(self.routing.client)",message="routing.client is needed with storage and without router: a wrong guess puts items where no application looks; it is one of dalli, dskit, evcache, gomemcache, libmemcached, libmemcached-ketama, libmemcached-ketama-weighted, mcrouter, memcached-proxy, memjs, pymemcache, pymemcache-bytes, python-memcached, spymemcached, spymemcached-ketama, spymemcached-ketama-names, twemproxy (docs/clients.md)"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || self.storage.mode != 'Memory' || !has(self.drain) || !has(self.drain.policy) || self.drain.policy != 'Retain'",message="drain.policy Retain keeps volumes: with storage.mode Memory there are none"
// +kubebuilder:validation:XValidation:rule="!has(self.rollout) || self.rollout != 'Moved' || has(self.storage)",message="rollout: Moved needs storage: without it, members have no names of their own; storage.mode Memory gives them names, and needs no volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.podDisruptionBudget) || !has(self.podDisruptionBudget.evictions) || self.podDisruptionBudget.evictions != 'StepOut' || has(self.router) && has(self.router.exclusive) && self.router.exclusive && has(self.storage) && (!has(self.rollout) || self.rollout == 'Moved')",message="podDisruptionBudget.evictions: StepOut needs router.exclusive, storage, and another rollout than Restart"
// +kubebuilder:validation:XValidation:rule="!has(self.router) || has(self.storage)",message="router needs storage: without it, members have no names of their own; storage.mode Memory gives them names, and needs no volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || !has(oldSelf.storage) || !has(self.memory) || !has(oldSelf.memory) || has(self.storage.size) == has(oldSelf.storage.size) || (has(self.storage.size) ? quantity(string(self.storage.size)).compareTo(quantity('0').add(int(2.125 * quantity(string(oldSelf.memory)).asApproximateFloat() + 0.5) + 67108864)) >= 0 : quantity(string(oldSelf.storage.size)).compareTo(quantity('0').add(int(2.125 * quantity(string(self.memory)).asApproximateFloat() + 0.5) + 67108864)) <= 0)",message="storage.size can't shrink, nor by leaving it out, or by naming less than what memory gave: Kubernetes makes no volume smaller"
// +kubebuilder:validation:XValidation:rule="!has(self.podTemplate) || (!has(self.podTemplate.containers) || self.podTemplate.containers.all(c, !has(c.ports) || c.ports.all(p, p.containerPort != self.containerPort && (!has(self.metrics) || p.containerPort != self.metrics.port) && (!has(self.discovery) || p.containerPort != self.discovery.port)))) && (!has(self.podTemplate.initContainers) || self.podTemplate.initContainers.all(c, !has(c.ports) || c.ports.all(p, p.containerPort != self.containerPort && (!has(self.metrics) || p.containerPort != self.metrics.port) && (!has(self.discovery) || p.containerPort != self.discovery.port))))",message="podTemplate: a container's port must not be containerPort, metrics.port or discovery.port: something else listens there"
// +kubebuilder:validation:XValidation:rule="!has(self.router) || !has(self.router.podTemplate) || (!has(self.router.podTemplate.containers) || self.router.podTemplate.containers.all(c, !has(c.ports) || c.ports.all(p, p.containerPort != self.containerPort))) && (!has(self.router.podTemplate.initContainers) || self.router.podTemplate.initContainers.all(c, !has(c.ports) || c.ports.all(p, p.containerPort != self.containerPort)))",message="router.podTemplate: a container's port must not be containerPort: the router listens there"
// +kubebuilder:validation:XValidation:rule="!has(self.warmFrom) || has(self.storage)",message="warmFrom needs storage: without it, members have no names of their own; storage.mode Memory gives them names, and needs no volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.warmFrom) || !has(self.warmFrom.onMiss) || !self.warmFrom.onMiss || has(self.router)",message="warmFrom.onMiss needs router: the routers ask the source"
type MemcachedSpec struct {
	// size is the number of members. 0 hibernates a cluster with storage: scaling up resumes with the cache warm.
	// If unset, the operator writes the present number, 1 for a new cluster, so that an autoscaler can set it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=512
	Size *int32 `json:"size,omitempty"`

	// paused stops the operator from changing anything of this cluster but its status. No drain starts.
	// Running members and drainers continue. Deleting the Memcached works as usual. Defaults to false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// containerPort is the TCP port that memcached listens on. Defaults to 11211.
	// +optional
	// +kubebuilder:default=11211
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ContainerPort int32 `json:"containerPort,omitempty"`

	// image has memcached 1.6.13 or later, but not 1.6.35 to 1.6.40, on its PATH; it needs no shell. With storage,
	// tls, auth or metrics, an older version does not start (VersionTooOld). A change replaces the members. Defaults
	// to the operator's MEMCACHED_IMAGE.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// memory is each member's room for items (memcached's -m), in whole MiB. The container needs more: see
	// resources. Defaults to 64Mi.
	// +optional
	// +kubebuilder:default="64Mi"
	Memory *resource.Quantity `json:"memory,omitempty"`

	// maxItemSize is the largest item (memcached's -I), in bytes: key, value and header. Defaults to
	// memcached's own, 1Mi.
	// +optional
	MaxItemSize *resource.Quantity `json:"maxItemSize,omitempty"`

	// threads is the number of memcached's worker threads (-t). Defaults to memcached's own, 4.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	Threads *int32 `json:"threads,omitempty"`

	// maxConnections is each member's limit of connections (-c); further ones are refused. With storage, tls, auth
	// or metrics, the member's supervisor uses two, with discovery three. Defaults to memcached's own, 1024.
	// +optional
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=1000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// extraArgs are further arguments of memcached, of 256 characters each at most. Defaults to
	// none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(a, !a.matches('^-[vkMrLACSFXWZ]*[empIctlUsadPuhiV]') && (!a.startsWith('--') || ['--memory-file', '--memory-limit', '--port', '--udp-port', '--max-item-size', '--threads', '--conn-limit', '--listen', '--unix-socket', '--unix-mask', '--daemon', '--pidfile', '--user', '--help', '--license', '--version'].all(f, !f.startsWith(a.split('=')[0]))))",message="extraArgs must not have a flag that the operator sets itself or that would end memcached at once: -e -m -p -I -c -t -l -U -s -a -d -P -u -h -i -V, or their long forms, abbreviated ones, too; use memory, containerPort, maxItemSize, threads and maxConnections"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !a.matches('^-[vkMrLACSFXW]*Z|(^(-[vkMrLACFXSW]*o)?|[,=])ssl_(chain_cert|key|keyformat|verify_mode|ca_cert)(=|,|$)') && (!a.startsWith('--enable-ss') || !'--enable-ssl'.startsWith(a.split('=')[0])))",message="extraArgs must not turn TLS on (-Z, and ssl_chain_cert, ssl_key, ssl_keyformat, ssl_verify_mode and ssl_ca_cert of -o): use tls"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !a.matches('^-[vkMrLACSFXW]*Y') && (!a.startsWith('--au') || !'--auth-file'.startsWith(a.split('=')[0])))",message="extraArgs must not name a file with logins (-Y): use auth"
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || !self[size(self) - 1].matches('^-[vkMrLACSFXWZ]*[fnDRbBoNY]$') && (!self[size(self) - 1].startsWith('--') || ['--slab-growth-factor', '--slab-min-size', '--max-reqs-per-event', '--listen-backlog', '--protocol', '--extended', '--auth-file', '--napi-ids'].all(f, !f.startsWith(self[size(self) - 1])))",message="extraArgs must not end with a flag that lacks its value"
	// +kubebuilder:validation:XValidation:rule="!self.join(' ').matches('(^| )(-[vkMrLACSFXWZ]*f ?|--slab-g[a-z-]*[= ])([+]?(0*1([.]0*)?|0+([.][0-9]*)?|[.][0-9]+)|[-a-zA-Z][^ ]*)( |$)|(^| )(-[vkMrLACSFXWZ]*[nR] ?|--(slab-m|max-r)[a-z-]*[= ])([+]?0+([^0-9 ][^ ]*)?|[a-zA-Z.][^ ]*)( |$)|(^| )(-[vkMrLACSFXWZ]*[nR] ?|--(slab-m|max-r)[a-z-]*[= ])(-[^ ]*|[0-9]{10,})( |$)|((^| )(-[vkMrLACSFXWZ]*o ?|--ex[a-z]*[= ])|,)((hashpower|tail_repair_time|lru_crawler_(sleep|tocrawl)|read_buf_mem_limit|(hot|warm)_lru_pct|slab_chunk_max|w(atch|ork)er_logbuf_size|slab_automove_window|ext_([a-z]+_(size|age|ttl|rate|under|sleep|depth)|threads)|ssl_(wbuf_size|min_version))(=([0-9]*[^0-9 ,][^ ,]*|[0-9]{10,})?)?|hashpower=0*([0-9]|1[0-2]|3[3-9]|[4-9][0-9]|[1-9][0-9]{2,})|(hot|warm)_lru_pct=0*([89][0-9]|[1-9][0-9]{2,})?|tail_repair_time=0*[0-9]?|lru_crawler_sleep=0*([2-9][0-9]{6}|[1-9][0-9]{7,})|slab_chunk_max=0+|worker_logbuf_size=0*([1-3]?[0-9]|4[0-7]|5[3-9][0-9]{4}|[6-9][0-9]{5}|[1-9][0-9]{6,})|slab_automove_window=0*([0-2]?|[1-9][0-9]{6,})|slab_sizes(=([0-9-]*[^0-9 ,-][^ ,]*|-[^ ,]*|([0-9]+-)*0*([1-3]?[0-9]|4[0-7]|[1-9][0-9]{7,})(-[0-9-]*)?)?)?|(slab_automove_(ratio|freeratio)|ext_max_frag|(hot|warm)_max_factor)(=([a-zA-Z][^ ,]*)?)?|sock_cookie_id|temporary_ttl|idle_timeout|ssl_ciphers|ssl_min_version=0*([4-9]|[1-9][0-9]+)|proxy_[a-z]+(=[^ ,]*)?|slab_automove_ratio=([+]?0*([.]0*)?|[+]?0*(1[.]0*[1-9][0-9]*|([2-9]|[1-9][0-9]+)([.][0-9]*)?)|-[^ ,]*)|slab_automove=([+]?0*([3-9]|[1-9][0-9]+)|-[1-9][^ ,]*)|(hot|warm)_max_factor=([+]?0*([.]0*)?|-[^ ,]*))([ ,]|$)') && self.join(' ').findAll('hash_algorithm[^ ,]*').all(h, h.matches('=(jenkins|murmur3|xxh3)$'))",message="extraArgs: memcached never starts with this, or soon ends: -f must be more than 1, -n and -R more than 0; -o needs whole numbers without a sign, hashpower 13 to 32, hot_lru_pct and warm_lru_pct 1 to 79, tail_repair_time 10 at least, lru_crawler_sleep 1000000 at most, worker_logbuf_size 48 to 524288, slab_sizes 48 at least, slab_chunk_max more than 0, hash_algorithm jenkins, murmur3 or xxh3, ssl_min_version 0 to 3, slab_automove 0 to 2, its window 3 to 999999 and its ratio at most 1, and it, hot_max_factor and warm_max_factor more than 0; a member is no proxy (proxy_config and others)"
	// +kubebuilder:validation:XValidation:rule="int(('hot_lru_pct=20 ' + self.join(' ')).find('^.*hot_lru_pct=[0-9]{1,9}').find('[0-9]+$')) + int(('warm_lru_pct=40 ' + self.join(' ')).find('^.*warm_lru_pct=[0-9]{1,9}').find('[0-9]+$')) <= 80",message="extraArgs: memcached never starts with this: hot_lru_pct and warm_lru_pct of -o may be 80 together at most; if not set, they are 20 and 40"
	ExtraArgs []string `json:"extraArgs,omitempty"`

	// tls makes the members accept TLS only. A change replaces the members. If unset, members accept plain
	// text.
	// +optional
	TLS *TLSSpec `json:"tls,omitempty"`

	// auth makes the members ask for a login: memcached's ASCII authentication (-Y). A change replaces the
	// members. If unset, members serve every client that can reach them.
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`

	// binding is a Secret with which an application finds the members and logs in, as a Provisioned
	// Service of servicebinding.io. The operator needs a Role for the Secret, which you create
	// (docs/security.md).
	// If unset, no Secret is created.
	// +optional
	Binding *BindingSpec `json:"binding,omitempty"`

	// resources of the memcached and the init container. Defaults to requests of 50m CPU and 1.1 times memory
	// plus 32Mi, each if neither a request nor a limit is set; without limits. The request covers memcached's
	// file in memory, which counts as the pod's memory. With a lower memory limit, members can be killed.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// podTemplate has further settings of the members' pods. A change replaces the members.
	// +optional
	PodTemplate PodTemplate `json:"podTemplate,omitzero"`

	// service has further settings of the Services of the members, of the list and of discovery.
	// +optional
	Service ServiceSpec `json:"service,omitzero"`

	// storage gives each member a volume, on which it keeps its cache across restarts. If unset, the
	// cluster is a Deployment.
	// +optional
	Storage *StorageSpec `json:"storage,omitempty"`

	// rollout says how members are replaced when their specification changes. Restart: each member restarts
	// with the items on its volume, and its clients get errors meanwhile. Moved, for clusters with
	// router.exclusive: each member first gives its items to the others, and routers don't call it until it
	// is back. Moved needs free memory for one member's items, and takes about half a minute for each member.
	// If Moved is not possible, the member restarts as with Restart, and status says why. With volumes, a
	// change of rollout replaces the members. Defaults to Moved with storage and router.exclusive, otherwise
	// to Restart.
	// +optional
	Rollout Rollout `json:"rollout,omitempty"`

	// routing says which client the applications use, so that each item is moved to where they look for it.
	// +optional
	// +kubebuilder:default={}
	Routing RoutingSpec `json:"routing,omitzero"`

	// discovery lets clients of ElastiCache or Memorystore follow each scaling, by ElastiCache's discovery
	// protocol at the Service NAME-discovery and containerPort. A change replaces the members. If unset,
	// members don't answer that protocol.
	// +optional
	Discovery *DiscoverySpec `json:"discovery,omitempty"`

	// router puts stateless routers in front of the members: one address, the Service NAME-router at
	// containerPort, for any library. Routers use the tls and auth of the members. If unset, there are no
	// routers.
	// +optional
	Router *RouterSpec `json:"router,omitempty"`

	// drain says what happens to a leaving member's items.
	// +optional
	// +kubebuilder:default={}
	Drain DrainSpec `json:"drain,omitzero"`

	// podDisruptionBudget bounds how many members may be evicted at once. Defaults to one, if there are several
	// members.
	// +optional
	PodDisruptionBudget PodDisruptionBudgetSpec `json:"podDisruptionBudget,omitzero"`

	// networkPolicy closes the members to all pods but those that it names and the cluster's own. If unset,
	// no NetworkPolicy is created.
	// +optional
	NetworkPolicy *NetworkPolicySpec `json:"networkPolicy,omitempty"`

	// metrics makes each member serve memcached's metrics to Prometheus, by HTTP and without a login, also
	// with tls and auth. If unset, no metrics are served.
	// +optional
	Metrics *MetricsSpec `json:"metrics,omitempty"`

	// warmFrom fills the cluster with the items of another cache, which is only read. Values that clients
	// have stored in this cluster stay. The cluster is not Ready until the copy has ended. If unset, the
	// cluster starts empty.
	// +optional
	WarmFrom *WarmSource `json:"warmFrom,omitempty"`
}

// Rollout is how members are replaced when their specification changes.
//
// +kubebuilder:validation:Enum=Restart;Moved
type Rollout string

// The kinds of roll-outs.
const (
	// RolloutRestart restarts each member where it is.
	RolloutRestart Rollout = "Restart"
	// RolloutMoved moves each member's items before it restarts empty, and back afterwards.
	RolloutMoved Rollout = "Moved"
)

// TLSClientAuth tells whether clients must show a certificate.
//
// +kubebuilder:validation:Enum=None;Required
type TLSClientAuth string

// The modes of client certificates.
const (
	// ClientAuthNone asks for no certificate.
	ClientAuthNone TLSClientAuth = "None"
	// ClientAuthRequired serves no client without a certificate.
	ClientAuthRequired TLSClientAuth = "Required"
)

// TLSSpec has the certificate of the members, and says whether clients need one.
type TLSSpec struct {
	// secretName of a Secret of type kubernetes.io/tls: tls.crt, the members' certificate with its chain;
	// tls.key; and ca.crt, the authorities that signed tls.crt and the clients' certificates. tls.crt must be
	// valid for the hosts in status.servers (*.NAME.NAMESPACE.svc covers them; without storage
	// *.NAME-list.NAMESPACE.svc) and, if they exist, for NAME-member-N.NAMESPACE.svc (routing.addresses
	// Stable), NAME-discovery.NAMESPACE.svc, NAME-router.NAMESPACE.svc and
	// *.NAME-list.NAMESPACE.svc.cluster.local.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
	// clientAuth is None (the default), or Required: clients must show a certificate that ca.crt signed. Drainers
	// show tls.crt, which must then be valid for clients, too.
	// +optional
	// +kubebuilder:default=None
	ClientAuth TLSClientAuth `json:"clientAuth,omitempty"`
}

// AuthSpec says which logins the members accept.
type AuthSpec struct {
	// secretName of a Secret whose key auth-file has 1 to 8 lines user:password, without blanks, each with a line
	// end. The operator's own programs use the first.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
}

// DiscoverySpec says how members answer the discovery protocol.
type DiscoverySpec struct {
	// port at which the members' supervisors answer the Service. Defaults to 11212.
	// +optional
	// +kubebuilder:default=11212
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// RouterSpec is the routers of a cluster.
//
// +kubebuilder:validation:XValidation:rule="(has(self.exclusive) && self.exclusive) == (has(oldSelf.exclusive) && oldSelf.exclusive)",message="exclusive can't be changed while there are routers: remove spec.router first"
type RouterSpec struct {
	// replicas is the number of routers. If unset, the Deployment NAME-router keeps its number, which an
	// autoscaler may set; new routers begin with 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	Replicas *int32 `json:"replicas,omitempty"`
	// exclusive says that applications call only the routers, never a member. Then a scaling loses no increment, no
	// add and no delete; a client that calls a member may read an empty value for a moment. Defaults to false.
	// +optional
	Exclusive bool `json:"exclusive,omitempty"`
	// failedReads is the answer to a read of a key whose member can't be reached: Miss (the default),
	// or Error. After an error, libraries drop the whole read. Meta commands and writes always get errors.
	// +optional
	FailedReads FailedReads `json:"failedReads,omitempty"`
	// resources of a router, which uses half of a memory limit for requests and answers under way.
	// Defaults to requests of 100m CPU and 64Mi, without limits.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// podTemplate has further settings of the routers' pods. A change replaces the routers.
	// Defaults, field by field, to the members' podTemplate, except for labels, annotations,
	// affinity to other pods, spread, topologySpreadConstraints, terminationGracePeriodSeconds, env,
	// volumes, volumeMounts, containers and initContainers. A field that is {} or [] counts as set.
	// +optional
	PodTemplate PodTemplate `json:"podTemplate,omitzero"`
	// service has further settings of the Service NAME-router.
	// +optional
	Service ServiceSpec `json:"service,omitzero"`
}

// FailedReads is the routers' answer for a key whose member can't be reached.
//
// +kubebuilder:validation:Enum=Miss;Error
type FailedReads string

// The answers to failed reads.
const (
	// FailedReadsMiss answers as if there were no item.
	FailedReadsMiss FailedReads = "Miss"
	// FailedReadsError answers with an error, which ends the read.
	FailedReadsError FailedReads = "Error"
)

// BindingSpec is a Secret for the applications.
type BindingSpec struct {
	// secretName of the Secret that the operator keeps up to date, of type servicebinding.io/memcached
	// (docs/security.md has its keys). A Secret of another owner is not changed.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SecretName string `json:"secretName"`
}

// Spread is how the members are spread over the nodes.
//
// +kubebuilder:validation:Enum=Soft;Hard;Off
type Spread string

// The ways to spread.
const (
	// SpreadSoft prefers nodes with fewer members.
	SpreadSoft Spread = "Soft"
	// SpreadHard lets a member wait rather than start on a node with more members than
	// another.
	SpreadHard Spread = "Hard"
	// SpreadOff leaves the choice to the scheduler.
	SpreadOff Spread = "Off"
)

// PodDisruptionBudgetSpec bounds voluntary disruptions.
//
// +kubebuilder:validation:XValidation:rule="!has(self.evictions) || self.evictions != 'StepOut' || !has(self.maxUnavailable) && (!has(self.enabled) || self.enabled)",message="podDisruptionBudget.evictions: StepOut needs the budget, and sets its maxUnavailable: leave both out"
type PodDisruptionBudgetSpec struct {
	// enabled creates a PodDisruptionBudget. Defaults to true. Pods with two budgets can't be evicted.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// maxUnavailable is how many members, or which share, may be unavailable. Defaults to 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="podDisruptionBudget.maxUnavailable must be a number of members, 1 at least, or a share from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// evictions says how members leave a node that is drained. Bounded (the default): with their items, as
	// maxUnavailable allows. StepOut, for clusters with router.exclusive: a member on a cordoned node first
	// gives its items to the others, one member at a time, and may be evicted when no router calls it any
	// more. If that is not possible, the member is evicted as with Bounded, and status says why. An
	// autoscaler that evicts without cordoning the node first can't remove the node. The operator must be
	// allowed to watch nodes.
	// +optional
	Evictions Evictions `json:"evictions,omitempty"`
}

// Evictions is how members leave a node that is drained.
//
// +kubebuilder:validation:Enum=Bounded;StepOut
type Evictions string

// The ways to leave a node.
const (
	// EvictionsBounded lets members be evicted with their items.
	EvictionsBounded Evictions = "Bounded"
	// EvictionsStepOut moves a member's items before it may be evicted.
	EvictionsStepOut Evictions = "StepOut"
)

// NetworkPolicySpec says who may reach the members.
type NetworkPolicySpec struct {
	// clients are the applications, which may reach memcached's port and that of discovery. Defaults
	// to none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Clients []networkingv1.NetworkPolicyPeer `json:"clients,omitempty"`
	// monitoring is Prometheus, which may reach the port of metrics. Defaults to none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Monitoring []networkingv1.NetworkPolicyPeer `json:"monitoring,omitempty"`
}

// MetricsSpec says how the members' metrics are served.
type MetricsSpec struct {
	// port of the metrics. Defaults to 9150.
	// +optional
	// +kubebuilder:default=9150
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// serviceMonitor creates a ServiceMonitor for the Prometheus operator. If unset, none is created.
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
}

// ServiceMonitorSpec has the settings of the ServiceMonitor.
type ServiceMonitorSpec struct {
	// labels by which your Prometheus selects ServiceMonitors. The operator's own keys win. Defaults to none.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// interval of the scrapes. Defaults to Prometheus' own.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="metrics.serviceMonitor.interval must be from 1s to 24h, such as 30s; the longest unit is h"
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// PodTemplate has a person's settings for the pods of one kind: members, routers, or the drainers' Jobs.
// Fields that router.podTemplate or drain.podTemplate leave out default to the members', except for labels,
// annotations, affinity to other pods, spread, topologySpreadConstraints, terminationGracePeriodSeconds, and
// additions to a pod (env, volumes, volumeMounts, containers, initContainers), which each kind has for
// itself. An empty value ({} or []) counts as set.
type PodTemplate struct {
	// labels of the pods, and of the StatefulSet, Deployment or Job that creates them; at most 64.
	// The operator's own keys win. Defaults to none.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="podTemplate.labels: a key has at most 317 characters, a value 63"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('cache.example.com/') && !k.startsWith('batch.kubernetes.io/') && k != 'job-name' && k != 'controller-uid')",message="podTemplate.labels must not have keys of cache.example.com, nor of batch.kubernetes.io, job-name and controller-uid, which are Kubernetes' own"
	Labels map[string]string `json:"labels,omitempty"`
	// annotations of the pods, and of what creates them; at most 64. Defaults, for members and drainers, to
	// cluster-autoscaler.kubernetes.io/safe-to-evict: "true".
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 4096)",message="podTemplate.annotations: a key has at most 317 characters, a value 4096"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('cache.example.com/') && !k.startsWith('batch.kubernetes.io/'))",message="podTemplate.annotations must not have keys of cache.example.com, nor of batch.kubernetes.io, which is Kubernetes' own"
	Annotations map[string]string `json:"annotations,omitempty"`
	// nodeSelector of the pods. Defaults to any node.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// affinity of the pods. Routers and drainers have the members' affinity to nodes by default.
	// Defaults to none.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// tolerations of the pods. Defaults to none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// spread over the nodes. Soft (the default) prefers nodes with fewer of the pods; Hard lets a pod wait for such
	// a node; Off leaves it to the scheduler. Routers are spread over the zones, too; drainers are not spread.
	// +optional
	Spread Spread `json:"spread,omitempty"`
	// topologySpreadConstraints of the pods, in place of spread; drainers have none. A constraint without a
	// labelSelector counts the pods of this kind and cluster. Defaults to those of spread.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +kubebuilder:validation:MaxItems=16
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// priorityClassName of the pods. Defaults to the cluster's default class.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// imagePullSecrets of the pods. Defaults to those of their service account.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// serviceAccountName of the pods. The account's token is not mounted. Defaults to the namespace's default
	// account.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// schedulerName of the pods. Defaults to the cluster's default scheduler.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`
	// runtimeClassName of the pods. Defaults to the nodes' own runtime.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`
	// terminationGracePeriodSeconds is how long a pod may take to end. A member saves its cache in this time.
	// Defaults to 30; for members with storage, to 30 and one more for each 16Mi of memory.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// securityContext of the pods. A drainer must run as the members' user. Defaults, field by field, to user,
	// group and fsGroup 11211 (none if the platform assigns users, as OpenShift does), not root (unless runAsUser
	// is 0), and the runtime's default seccomp profile.
	// +optional
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`
	// env are variables of the main container: memcached, the router, or the drainer. Defaults to none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []corev1.EnvVar `json:"env,omitempty"`
	// volumes of the pods beside the operator's. Defaults to none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(v, !(v.name in ['data', 'supervisor', 'memory', 'tls', 'auth', 'list', 'table', 'scratch', 'begin', 'source']))",message="podTemplate.volumes must not have a name of the operator's own volumes: data, supervisor, memory, tls, auth, list, table, scratch, begin, source"
	Volumes []corev1.Volume `json:"volumes,omitempty"`
	// volumeMounts of the main container, of volumes named here. Defaults to none.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(m, !(m.name in ['data', 'supervisor', 'memory', 'tls', 'auth', 'list', 'table', 'scratch', 'begin', 'source']))",message="podTemplate.volumeMounts must not mount the operator's own volumes: data, supervisor, memory, tls, auth, list, table, scratch, begin, source"
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.mountPath.startsWith('/') && !m.mountPath.endsWith('/') && !m.mountPath.endsWith('/.') && !m.mountPath.endsWith('/..') && !m.mountPath.contains('//') && !m.mountPath.contains('/./') && !m.mountPath.contains('/../'))",message="podTemplate.volumeMounts: mountPath must be an absolute path without empty parts, . and .."
	// +kubebuilder:validation:XValidation:rule="self.all(m, ['/data', '/supervisor', '/memory', '/tls', '/auth', '/list', '/table', '/scratch', '/run/begin', '/source', '/drainer', '/dev/termination-log'].all(d, m.mountPath != d && !m.mountPath.startsWith(d + '/')) && !(m.mountPath in ['/run', '/dev']))",message="podTemplate.volumeMounts: mountPath must not be one of the operator's own, nor below: /data, /supervisor, /memory, /tls, /auth, /list, /table, /scratch, /run/begin, /source, /drainer, /dev/termination-log; nor /run or /dev"
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	// containers are sidecars. Sidecars of a drainer end with the drainer. Defaults to none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, !(c.name in ['memcached', 'install', 'router', 'drainer']))",message="podTemplate.containers must not have a name of the operator's own containers: memcached, install, router, drainer"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.ports) || c.ports.all(p, !has(p.name) || !(p.name in ['memcached', 'metrics', 'discovery', 'export', 'admin'])))",message="podTemplate.containers: a port must not have a name of the operator's own: memcached, metrics, discovery, export, admin"
	// +kubebuilder:validation:XValidation:rule="self.all(c, (!has(c.volumeMounts) || c.volumeMounts.all(m, !(m.name in ['data', 'supervisor', 'memory', 'tls', 'auth', 'list', 'table', 'scratch', 'begin', 'source']))) && (!has(c.volumeDevices) || c.volumeDevices.all(d, !(d.name in ['data', 'supervisor', 'memory', 'tls', 'auth', 'list', 'table', 'scratch', 'begin', 'source']))))",message="podTemplate.containers must not mount the operator's own volumes, nor have them as devices: data, supervisor, memory, tls, auth, list, table, scratch, begin, source"
	Containers []corev1.Container `json:"containers,omitempty"`
	// initContainers run after the operator's own; with restartPolicy Always they are sidecars. Defaults to none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(c, !(c.name in ['memcached', 'install', 'router', 'drainer']))",message="podTemplate.initContainers must not have a name of the operator's own containers: memcached, install, router, drainer"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.ports) || c.ports.all(p, !has(p.name) || !(p.name in ['memcached', 'metrics', 'discovery', 'export', 'admin'])))",message="podTemplate.initContainers: a port must not have a name of the operator's own: memcached, metrics, discovery, export, admin"
	// +kubebuilder:validation:XValidation:rule="self.all(c, (!has(c.volumeMounts) || c.volumeMounts.all(m, !(m.name in ['data', 'supervisor', 'memory', 'tls', 'auth', 'list', 'table', 'scratch', 'begin', 'source']))) && (!has(c.volumeDevices) || c.volumeDevices.all(d, !(d.name in ['data', 'supervisor', 'memory', 'tls', 'auth', 'list', 'table', 'scratch', 'begin', 'source']))))",message="podTemplate.initContainers must not mount the operator's own volumes, nor have them as devices: data, supervisor, memory, tls, auth, list, table, scratch, begin, source"
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
}

// ServiceType is how a Service is reached.
//
// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
type ServiceType string

// The types of Services.
const (
	// ServiceClusterIP is reached within the cluster of Kubernetes.
	ServiceClusterIP ServiceType = "ClusterIP"
	// ServiceNodePort is reached at a port of each node, too.
	ServiceNodePort ServiceType = "NodePort"
	// ServiceLoadBalancer is reached by a load balancer, too.
	ServiceLoadBalancer ServiceType = "LoadBalancer"
)

// ServiceSpec has a person's settings for the Services that clients use.
type ServiceSpec struct {
	// type of the Services that have an address of their own (NAME-router, NAME-discovery, NAME-member-N of
	// routing.addresses Stable): ClusterIP (the default), NodePort or LoadBalancer. NAME and NAME-list stay
	// headless.
	// +optional
	Type ServiceType `json:"type,omitempty"`
	// labels of the Services, at most 64. The operator's own keys win. Defaults to none.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63 && !k.startsWith('cache.example.com/'))",message="service.labels: a key has at most 317 characters and is none of cache.example.com, which are the operator's; a value has at most 63"
	Labels map[string]string `json:"labels,omitempty"`
	// annotations of the Services, at most 64. Defaults to none.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 4096 && !k.startsWith('cache.example.com/'))",message="service.annotations: a key has at most 317 characters and is none of cache.example.com, which are the operator's; a value has at most 4096"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// StorageMode is where a member's items are while it runs.
//
// +kubebuilder:validation:Enum=Mapped;Saved;Memory
type StorageMode string

// The storage modes.
const (
	// StorageMapped maps the file on the volume.
	StorageMapped StorageMode = "Mapped"
	// StorageSaved keeps the file in memory, and saves it on the volume.
	StorageSaved StorageMode = "Saved"
	// StorageMemory keeps the file in the pod's memory, and needs no volume.
	StorageMemory StorageMode = "Memory"
)

// HasVolumes tells whether each member has a volume.
func (s *MemcachedSpec) HasVolumes() bool { return s.Storage != nil && s.Storage.Mode != StorageMemory }

// InPods tells whether the items of members with names are nowhere but in their pods.
func (s *MemcachedSpec) InPods() bool { return s.Storage != nil && s.Storage.Mode == StorageMemory }

// StorageSpec says where each member keeps its items.
//
// +kubebuilder:validation:XValidation:rule="self.mode != 'Memory' || !has(self.size) && !has(self.storageClassName)",message="storage.size and storageClassName are for volumes: with storage.mode Memory there are none"
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",message="storage.mode can't be changed: create another cluster, or delete this one with drain.whenDeleted Retain and create it again, over its volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.size) || !has(oldSelf.size) || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",message="storage.size can't shrink, for Kubernetes makes no volume smaller: create another cluster"
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="storage.storageClassName can't be changed: create another cluster"
type StorageSpec struct {
	// size of each member's volume, which may grow if the storage class lets volumes grow. Defaults to twice
	// memory, plus an eighth of it, plus 64Mi: room for a replay. The default grows with memory, when a
	// member with the new memory is ready.
	// +optional
	Size resource.Quantity `json:"size,omitzero"`
	// storageClassName of the volumes. Defaults to the cluster's default class.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`
	// mode is where the items are while a member runs. Saved (the default): in memory; on the volume from the
	// member's end to its next start, so a pod that is lost without a save loses its items. Mapped: in a file
	// on the volume, which memcached writes to all the time; the items outlive any end of the pod, as long as
	// the node lives. Memory: in the pod's memory, without a volume; the items outlive containers, are moved
	// when a member leaves, and are lost at size 0 and with a pod that ends in any other way.
	// +optional
	// +kubebuilder:default=Saved
	Mode StorageMode `json:"mode,omitempty"`
}

// Client names a way in which clients choose a key's server. Package drainer/routing has them all, and make manifests
// writes them into the CRD.
type Client string

// RoutingSpec says where the applications look for a key.
//
// +kubebuilder:validation:XValidation:rule="!has(self.keyPrefix) || !has(self.client) || self.client.startsWith('libmemcached') || self.client.startsWith('pymemcache')",message="routing.keyPrefix is for libmemcached and pymemcache, which hash a key without its prefix: leave it out for other clients"
type RoutingSpec struct {
	// client is the applications' memcached client and its distribution: see docs/clients.md. Required with
	// storage and without router. If unset, routers choose a member as libmemcached-ketama-weighted does.
	// +optional
	Client Client `json:"client,omitempty"`

	// keyPrefix is the text that the client writes before each key without hashing it: libmemcached's and
	// php's PREFIX_KEY, pymemcache's key_prefix. Defaults to none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	KeyPrefix string `json:"keyPrefix,omitempty"`

	// serverName is a member's name in the clients' configuration, with {ordinal} in place of its number:
	// cache-{ordinal}.cache, a name in the cluster's domain, an alias. Add a port other than containerPort.
	// Defaults to the names in status.servers.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]*\{ordinal\}[A-Za-z0-9._-]*(:[0-9]+)?$`
	ServerName string `json:"serverName,omitempty"`

	// addresses says what the list of servers names. Pod (the default): the members' pods, whose addresses change
	// when they restart. Stable: a Service for each member, NAME-member-N, for clients that look names up only
	// once, or hash addresses.
	// +optional
	// +kubebuilder:default=Pod
	Addresses AddressMode `json:"addresses,omitempty"`

	// moves says what happens to items after the list of servers or the routing has changed. Live (the
	// default): items are moved to where clients look for them. Off: items stay where they are, reads of
	// these keys miss, and old values may come back.
	// +optional
	// +kubebuilder:default=Live
	Moves MoveMode `json:"moves,omitempty"`

	// patience is how long a leaving member serves clients that still call it. The member leaves as soon as
	// no client does; at once with 0s, or if moves is Off. For the same time at most, items wait until half
	// of the clients have followed the list, and items that late clients store on other members are moved to
	// their owners. Defaults to 90s: most clients ask for the list again after a minute.
	// +optional
	// +kubebuilder:default="90s"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') && duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="routing.patience must be from 0s to 24h, such as 1m30s; the longest unit is h"
	Patience *metav1.Duration `json:"patience,omitempty"`
}

// RingClient is the client library that decides which member owns a key.
func (r *RoutingSpec) RingClient() string {
	if r.Client == "" {
		return "libmemcached-ketama-weighted"
	}
	return string(r.Client)
}

// AddressMode says whose addresses the members have on the list of servers.
//
// +kubebuilder:validation:Enum=Pod;Stable
type AddressMode string

// The modes of addresses.
const (
	// AddressesPod are those of the members' pods.
	AddressesPod AddressMode = "Pod"
	// AddressesStable are those of a Service for each member.
	AddressesStable AddressMode = "Stable"
)

// MoveMode tells whether items are moved to where clients look for them.
//
// +kubebuilder:validation:Enum=Live;Off
type MoveMode string

// The modes of moves.
const (
	// MovesLive moves items while members run.
	MovesLive MoveMode = "Live"
	// MovesOff leaves items where they are.
	MovesOff MoveMode = "Off"
)

// DrainPolicy says what happens to the volume of a leaving member.
//
// +kubebuilder:validation:Enum=Drain;Retain;Delete
type DrainPolicy string

// The drain policies.
const (
	// PolicyDrain drains the items to the survivors, and then deletes the claim.
	PolicyDrain DrainPolicy = "Drain"
	// PolicyRetain keeps the claim as it is.
	PolicyRetain DrainPolicy = "Retain"
	// PolicyDelete deletes the claim with its items.
	PolicyDelete DrainPolicy = "Delete"
)

// DeletionPolicy says what happens to the claims when the Memcached is deleted.
//
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

// The deletion policies.
const (
	// DeletionRetain keeps the claims; a cluster of the same name resumes warm.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionDelete deletes the claims with the cluster.
	DeletionDelete DeletionPolicy = "Delete"
)

// UnreadablePolicy says what happens to a volume that no drain can read.
//
// +kubebuilder:validation:Enum=Keep;Release
type UnreadablePolicy string

// The policies for a volume that no drain can read.
const (
	// UnreadableKeep keeps the volume for a person.
	UnreadableKeep UnreadablePolicy = "Keep"
	// UnreadableRelease gives up the items on the volume.
	UnreadableRelease UnreadablePolicy = "Release"
)

// ShortagePolicy says what happens to a scale-down whose items don't fit.
//
// +kubebuilder:validation:Enum=Proceed;Wait
type ShortagePolicy string

// The policies for a scale-down whose items don't fit.
const (
	// ShortageProceed lets members evict the least recently used items.
	ShortageProceed ShortagePolicy = "Proceed"
	// ShortageWait waits for room.
	ShortageWait ShortagePolicy = "Wait"
)

// DrainSpec says what happens to the items of a leaving member.
type DrainSpec struct {
	// policy for the volume of a leaving member, decided when it is told to leave. Drain (the default) adds its
	// items to the survivors, and only then deletes its claim. Retain keeps the claim. Delete gives the items up.
	// +optional
	// +kubebuilder:default=Drain
	Policy DrainPolicy `json:"policy,omitempty"`
	// whenDeleted is the policy for all claims when the Memcached is deleted: Retain (the default), so that a
	// cluster of the same name resumes warm, or Delete.
	// +optional
	// +kubebuilder:default=Retain
	WhenDeleted DeletionPolicy `json:"whenDeleted,omitempty"`
	// parallelism is how many volumes are drained at once. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Parallelism int32 `json:"parallelism,omitempty"`
	// backoffLimit is how often a failed drainer is started again at once. An evicted drainer doesn't count.
	// Defaults to 6.
	// +optional
	// +kubebuilder:default=6
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// activeDeadline is how long one drainer may run, without the time that its pod waits. After that another
	// drainer continues. Defaults to 1h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') && duration(self) >= duration('30s') && duration(self) <= duration('8760h')",message="drain.activeDeadline must be from 30s to 8760h, such as 1h30m; the longest unit is h"
	ActiveDeadline *metav1.Duration `json:"activeDeadline,omitempty"`
	// resources of the drainer. Defaults to requests of 10m CPU and 64Mi, without limits: where a node has
	// too little CPU, members and routers come first.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// podTemplate has further settings of the Jobs of drains and moves, and of their pods. Defaults as
	// router.podTemplate does.
	// +optional
	PodTemplate PodTemplate `json:"podTemplate,omitzero"`
	// rateLimit slows a drain down. Defaults to none.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`
	// onUnrecoverable is for a departed member's volume that no retry can read. Keep (the default) keeps it for a
	// person. Release gives its items up and deletes the claim.
	// +optional
	// +kubebuilder:default=Keep
	OnUnrecoverable UnreadablePolicy `json:"onUnrecoverable,omitempty"`
	// onShortage is for leaving members that have more items than the survivors have room for. Proceed (the
	// default) evicts the least recently used; Wait keeps the members until there is room. Room is counted in
	// memcached's size classes and their pages, on each survivor.
	// +optional
	// +kubebuilder:default=Proceed
	OnShortage ShortagePolicy `json:"onShortage,omitempty"`
	// skipExpiringWithin leaves out items that expire within this time. Defaults to 0s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') && duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="drain.skipExpiringWithin must be from 0s to 720h, such as 1m30s; the longest unit is h"
	SkipExpiringWithin *metav1.Duration `json:"skipExpiringWithin,omitempty"`
}

// RateLimit is the limit of one drain or warming, over all members that it adds to. If both fields are set,
// both limits apply.
type RateLimit struct {
	// itemsPerSecond is the limit of items. Defaults to no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ItemsPerSecond *int64 `json:"itemsPerSecond,omitempty"`
	// bytesPerSecond is the limit of keys and values, in bytes. Defaults to no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Ki')) >= 0 && quantity(string(self)).sub(int(quantity(string(self)).asApproximateFloat() + 0.5)).compareTo(quantity('0')) == 0",message="rateLimit.bytesPerSecond must be a whole number of bytes, 1Ki at least"
	BytesPerSecond *resource.Quantity `json:"bytesPerSecond,omitempty"`
}

// Phase is a word for the state of a cluster.
type Phase string

// The phases of a cluster.
const (
	PhasePending    Phase = "Pending"    // members are being created for the first time
	PhaseScaling    Phase = "Scaling"    // members come or go
	PhaseDraining   Phase = "Draining"   // items of departed members are being drained
	PhaseMoving     Phase = "Moving"     // items are being moved between members
	PhaseWarming    Phase = "Warming"    // the cluster is being filled from another cache
	PhaseRunning    Phase = "Running"    // as the spec wants it
	PhaseHibernated Phase = "Hibernated" // size 0: volumes wait for the members' return
	PhaseDegraded   Phase = "Degraded"   // something needs a person; see the condition
	PhaseDeleting   Phase = "Deleting"
)

// MemcachedStatus is the observed state of a cluster.
type MemcachedStatus struct {
	// observedGeneration is that of the spec.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is a word for the state of the cluster; conditions say more.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// size is the number of members that exist.
	// +optional
	Size int32 `json:"size"`
	// readySize is the number of members that are ready.
	// +optional
	ReadySize int32 `json:"readySize"`
	// selector of the members' pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// servers is the clients' list, in ring order, as host:port.
	// +optional
	// +listType=atomic
	Servers []string `json:"servers,omitempty"`
	// router has the address of the routers, and how many there are.
	// +optional
	Router *RouterStatus `json:"router,omitempty"`
	// binding names the Secret of spec.binding, once it exists.
	// +optional
	Binding *BindingStatus `json:"binding,omitempty"`
	// serviceMonitor is the name of the ServiceMonitor, once it is there.
	// +optional
	ServiceMonitor string `json:"serviceMonitor,omitempty"`
	// nodes are the names of the members' pods, sorted.
	// +optional
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`
	// draining is the number of volumes that are to be drained.
	// +optional
	Draining int32 `json:"draining,omitempty"`
	// moving is the number of members that may have items which clients look for elsewhere.
	// +optional
	Moving int32 `json:"moving,omitempty"`
	// latePercent is the share of requests, in percent, that clients make by an earlier list while items are
	// moved, at the member with the largest share. Unset if there is none, or if it is not known.
	// +optional
	LatePercent int32 `json:"latePercent,omitempty"`
	// progress of the drains, or else of the moves.
	// +optional
	Progress string `json:"progress,omitempty"`
	// drains has each claim that is to be drained, highest ordinal first.
	// +optional
	// +listType=map
	// +listMapKey=claim
	// +kubebuilder:validation:MaxItems=32
	Drains []DrainStatus `json:"drains,omitempty"`
	// lastDrains are the last five drains that ended, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	LastDrains []DrainReceipt `json:"lastDrains,omitempty"`
	// warm is the state of spec.warmFrom.
	// +optional
	Warm *WarmStatus `json:"warm,omitempty"`
	// advice has changes that a person may want to make, and facts that they should know.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=8
	Advice []Advice `json:"advice,omitempty"`
	// conditions are Ready (all is as the spec wants it), Available, Progressing and Degraded; Draining, Moving,
	// Monitored, Bindable, CertificateValid and RoutersReady while they have something to say.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Advice is a change that a person may want to make, or a fact that they should know.
type Advice struct {
	// reason in one word; the runbook has a section on it.
	Reason string `json:"reason"`
	// message for people, of 1024 bytes at most.
	Message string `json:"message"`
}

// RouterStatus is the state of the routers.
type RouterStatus struct {
	// address for applications, as host:port.
	Address string `json:"address"`
	// replicas is the number of routers that exist.
	// +optional
	Replicas int32 `json:"replicas"`
	// ready is the number of routers that are ready.
	// +optional
	Ready int32 `json:"ready"`
	// behind are router pods that have not acknowledged a scaling's state for five seconds.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Behind []string `json:"behind,omitempty"`
}

// BindingStatus names the Secret for applications.
type BindingStatus struct {
	// name of the Secret, in the same namespace.
	Name string `json:"name"`
}

// DrainPhase is a word for the state of one drain.
type DrainPhase string

// The phases of a drain, in order. Held waits for a person; Failed waits for its next attempt,
// unless only a person can fix it.
const (
	DrainLeaving   DrainPhase = "Leaving"   // the member still runs, and its items are moved
	DrainWaiting   DrainPhase = "Waiting"   // for the end of the pod, or for its turn
	DrainStarting  DrainPhase = "Starting"  // the Job's pod is not running yet
	DrainAdding    DrainPhase = "Adding"    // the drainer is at work
	DrainReleasing DrainPhase = "Releasing" // the receipt is recorded; the claim is being deleted
	DrainHeld      DrainPhase = "Held"      // a person holds the drain, by annotation
	DrainFailed    DrainPhase = "Failed"    // the claim is kept
)

// DrainStatus is a claim that is to be drained.
type DrainStatus struct {
	// claim is the name of the claim.
	Claim string `json:"claim"`
	// ordinal of the member.
	Ordinal int32 `json:"ordinal"`
	// phase of the drain.
	Phase DrainPhase `json:"phase"`
	// since is when the drain entered this phase.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// itemsDone counts the items that have an outcome.
	// +optional
	ItemsDone int64 `json:"itemsDone,omitempty"`
	// itemsTotal counts the items on the volume; an estimate after a crash.
	// +optional
	ItemsTotal int64 `json:"itemsTotal,omitempty"`
	// itemsMoved counts the items that were moved while the member ran.
	// +optional
	ItemsMoved int64 `json:"itemsMoved,omitempty"`
	// bytesDone is how many bytes of the file on the volume have been read.
	// +optional
	BytesDone int64 `json:"bytesDone,omitempty"`
	// bytesTotal is the file's size, in bytes.
	// +optional
	BytesTotal int64 `json:"bytesTotal,omitempty"`
	// timeLeft is an estimate, in whole seconds.
	// +optional
	TimeLeft *metav1.Duration `json:"timeLeft,omitempty"`
	// reason why the drain waits, is held or failed: one of docs/runbook.md, or the scheduler's or the kubelet's
	// own.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason, and says what a person can do.
	// +optional
	Message string `json:"message,omitempty"`
	// leavingSince is when the member was told to leave.
	// +optional
	LeavingSince *metav1.Time `json:"leavingSince,omitempty"`
	// startedAt is when the Job was created.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
}

// DrainReceipt is the result of a drain whose claim was released, or, with storage.mode Memory, of a member that left.
type DrainReceipt struct {
	// claim is the name of the claim; with storage.mode Memory, of the member's pod.
	Claim string `json:"claim"`
	// claimUID is the UID of the claim or the pod.
	ClaimUID string `json:"claimUID"`
	// result is Drained, or why there was no drain: Skipped, Deleted, Unrecoverable, NeverBound. With storage.mode Memory
	// it is Moved, or why not all items were moved: Skipped, Deleted, NotMoved.
	Result string `json:"result"`
	// moved counts the items that were moved while the member ran.
	// +optional
	Moved int64 `json:"moved,omitempty"`
	// notMoved counts the items that were lost with the pod of a member without a volume, by its last mover;
	// unset if all were moved, or if the number is not known.
	// +optional
	NotMoved *int64 `json:"notMoved,omitempty"`
	// found counts the live items on the volume.
	// +optional
	Found int64 `json:"found,omitempty"`
	// added counts the items that the drain added to their owners.
	// +optional
	Added int64 `json:"added,omitempty"`
	// alreadyPresent counts the items whose owner had a value.
	// +optional
	AlreadyPresent int64 `json:"alreadyPresent,omitempty"`
	// expired counts the items that had expired.
	// +optional
	Expired int64 `json:"expired,omitempty"`
	// invalidated counts the items that a client had flushed or marked stale.
	// +optional
	Invalidated int64 `json:"invalidated,omitempty"`
	// bytes is how many bytes of keys and values were added.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// unclean is true if the member had not saved (crash, OOM kill).
	// +optional
	Unclean bool `json:"unclean,omitempty"`
	// duration is the time from leavingSince to endedAt, in whole seconds.
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
	// endedAt is when the finalizer was removed from the claim.
	EndedAt metav1.Time `json:"endedAt"`
}

// Memcached is a memcached cluster that keeps its cache across restarts and scale-downs.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.size,statuspath=.status.size,selectorpath=.status.selector
// +kubebuilder:resource:shortName=mc;mcd,categories=all
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readySize`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Moving",type=integer,JSONPath=`.status.moving`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Client",type=string,JSONPath=`.spec.routing.client`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="the name must be a DNS label of at most 52 characters that begins with a letter: the Service and the members are named after it"
// +kubebuilder:validation:XValidation:rule="(!has(self.spec.podTemplate) || !has(self.spec.podTemplate.volumes) || self.spec.podTemplate.volumes.all(v, !has(v.persistentVolumeClaim) || !v.persistentVolumeClaim.claimName.startsWith('data-' + self.metadata.name + '-'))) && (!has(self.spec.router) || !has(self.spec.router.podTemplate) || !has(self.spec.router.podTemplate.volumes) || self.spec.router.podTemplate.volumes.all(v, !has(v.persistentVolumeClaim) || !v.persistentVolumeClaim.claimName.startsWith('data-' + self.metadata.name + '-'))) && (!has(self.spec.drain) || !has(self.spec.drain.podTemplate) || !has(self.spec.drain.podTemplate.volumes) || self.spec.drain.podTemplate.volumes.all(v, !has(v.persistentVolumeClaim) || !v.persistentVolumeClaim.claimName.startsWith('data-' + self.metadata.name + '-')))",message="podTemplate.volumes must not have a claim of the members, data-NAME-N: a volume has one user"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.warmFrom) || !has(self.spec.warmFrom.memcached) || self.spec.warmFrom.memcached != self.metadata.name",message="warmFrom.memcached must be another Memcached"
type Memcached struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the cluster.
	Spec MemcachedSpec `json:"spec"`
	// status is the observed state of the cluster.
	// +optional
	Status MemcachedStatus `json:"status,omitempty"`
}

// MemcachedList is a list of Memcached.
//
// +kubebuilder:object:root=true
type MemcachedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Memcached `json:"items"`
}
