package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WarmSource is the cache that fills a cluster.
//
// +kubebuilder:validation:XValidation:rule="[has(self.memcached), has(self.servers), has(self.discovery), has(self.volumes)].filter(x, x).size() == 1",message="warmFrom must have exactly one of memcached, servers, discovery and volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.memcached) && !has(self.volumes) || !has(self.routing) && !has(self.tls) && !has(self.auth)",message="warmFrom.routing, tls and auth are for servers and discovery: another Memcached has its own, and volumes need none"
// +kubebuilder:validation:XValidation:rule="!has(self.discovery) && (!has(self.servers) || size(self.servers) < 2) || has(self.routing)",message="warmFrom.routing is needed with discovery, and with several servers: its client says on which server the source's applications look for a key (docs/clients.md)"
// +kubebuilder:validation:XValidation:rule="!has(self.onMiss) || !self.onMiss || !has(self.volumes)",message="warmFrom.onMiss needs a source that answers: volumes don't"
type WarmSource struct {
	// memcached is the name of another Memcached in the same namespace. Its servers, routing, tls and auth are used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	Memcached string `json:"memcached,omitempty"`
	// servers of the source, as HOST:PORT, in the order of its applications' list. NAME=HOST:PORT if they call a
	// server by another name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=520
	// +kubebuilder:validation:items:Pattern=`^([^=,\s]+=)?[^=,\s]+:[0-9]{1,5}$`
	Servers []string `json:"servers,omitempty"`
	// discovery is the HOST:PORT that tells the source's servers, by ElastiCache's discovery protocol: the
	// configuration endpoint of ElastiCache, the discovery endpoint of Memorystore.
	// +optional
	// +kubebuilder:validation:MaxLength=262
	// +kubebuilder:validation:Pattern=`^[^=,\s]+:[0-9]{1,5}$`
	Discovery string `json:"discovery,omitempty"`
	// volumes are claims of the same namespace with members' files: volumes that were restored from
	// VolumeSnapshots, or that another cluster has left. One volume after the other is mounted, read-only.
	// +optional
	Volumes *WarmVolumes `json:"volumes,omitempty"`
	// routing of the source's applications. Required with discovery, and with several servers.
	// +optional
	Routing *WarmRouting `json:"routing,omitempty"`
	// tls of servers and discovery. If unset, both are called in plain text.
	// +optional
	TLS *WarmTLS `json:"tls,omitempty"`
	// auth is the login for servers and discovery. If unset, there is none.
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`
	// rateLimit slows the warming down. Defaults to none.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`
	// until says when clients are told of the members of a new cluster: Listed (the default), at once; Ready,
	// when the cluster is warm.
	// +optional
	// +kubebuilder:default=Listed
	Until WarmUntil `json:"until,omitempty"`
	// onShortage is for a source with more items than the cluster has room for. Wait (the default) copies nothing.
	// Proceed copies the most recently used items, as many as fit; several claims are copied one after the other, so
	// the items of a later one may evict hotter ones.
	// +optional
	// +kubebuilder:default=Wait
	OnShortage ShortagePolicy `json:"onShortage,omitempty"`
	// onMiss makes the routers ask the source for each item that they miss, and keep the item, as long as the
	// spec says so. Needs router. If the source can't be listed, only these items are copied. Defaults to
	// false.
	// +optional
	OnMiss bool `json:"onMiss,omitempty"`
	// patience is how long after its first failure, or since it was not there or the Job's pod could not start, a source
	// that can't be copied holds the cluster back. Then the cluster is Ready, and on its own list, without it. A Job that
	// copies is not ended, and another copy that a person asks for is not given up. Defaults to 24h; 0s is for ever.
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') && duration(self) >= duration('0s') && duration(self) <= duration('2400h')",message="warmFrom.patience must be from 0s to 2400h, such as 36h; the longest unit is h"
	Patience *metav1.Duration `json:"patience,omitempty"`
}

// WarmUntil says when clients are told of the members of a new cluster.
//
// +kubebuilder:validation:Enum=Listed;Ready
type WarmUntil string

// The moments.
const (
	// WarmListed tells clients at once.
	WarmListed WarmUntil = "Listed"
	// WarmReady tells clients when the cluster is warm.
	WarmReady WarmUntil = "Ready"
)

// WarmVolumes are the claims with the source's files.
type WarmVolumes struct {
	// selector of the claims, 64 at most.
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="warmFrom.volumes.selector must not be empty: it would select all claims of the namespace"
	Selector metav1.LabelSelector `json:"selector"`
}

// WarmRouting says where the source's applications look for a key.
//
// +kubebuilder:validation:XValidation:rule="!has(self.keyPrefix) || self.client.startsWith('libmemcached') || self.client.startsWith('pymemcache')",message="warmFrom.routing.keyPrefix is for libmemcached and pymemcache, which hash a key without its prefix: leave it out for other clients"
type WarmRouting struct {
	// client is the memcached client of the source's applications and its distribution, as spec.routing.client.
	Client Client `json:"client"`
	// keyPrefix is the text that the source's client writes before each key without hashing it. Defaults to
	// none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	KeyPrefix string `json:"keyPrefix,omitempty"`
}

// WarmTLS verifies the source's servers.
type WarmTLS struct {
	// secretName of a Secret in the same namespace: ca.crt, the authorities of the source's certificates; and
	// tls.crt and tls.key, if the source asks clients for a certificate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
}

// WarmPhase is a word for the state of a warming.
type WarmPhase string

// The phases of a warming.
const (
	WarmWaiting  WarmPhase = "Waiting"  // for its turn, for the members, or for the source
	WarmStarting WarmPhase = "Starting" // the Job's pod is not running yet
	WarmCopying  WarmPhase = "Copying"  // items are being copied
	WarmFailed   WarmPhase = "Failed"   // tried again, unless only a person can fix it
	WarmDone     WarmPhase = "Warm"     // the source was copied
	WarmSkipped  WarmPhase = "Skipped"  // a person has skipped it
	WarmOnMiss   WarmPhase = "OnMiss"   // the source can't be listed: routers ask it for what they miss
	WarmGivenUp  WarmPhase = "GivenUp"  // the source could not be copied within warmFrom.patience
)

// WarmStatus is the state of spec.warmFrom.
type WarmStatus struct {
	// phase of the warming.
	Phase WarmPhase `json:"phase"`
	// since is when the warming entered this phase.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// pass is the number of the present pass over the source, counted from 1.
	// +optional
	Pass int32 `json:"pass,omitempty"`
	// itemsDone counts the items of this Job that have an outcome.
	// +optional
	ItemsDone int64 `json:"itemsDone,omitempty"`
	// itemsTotal counts the items that this Job expects.
	// +optional
	ItemsTotal int64 `json:"itemsTotal,omitempty"`
	// timeLeft is an estimate, in whole seconds.
	// +optional
	TimeLeft *metav1.Duration `json:"timeLeft,omitempty"`
	// reason why the warming waits or failed.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason, and says what a person can do.
	// +optional
	Message string `json:"message,omitempty"`
	// last has the sums of the receipts of this source's Jobs.
	// +optional
	Last *WarmReceipt `json:"last,omitempty"`
}

// WarmReceipt counts the items that were copied from a source: the sums of its receipts.
type WarmReceipt struct {
	// jobs that have ended with a receipt.
	Jobs int32 `json:"jobs"`
	// passes over the source.
	// +optional
	Passes int64 `json:"passes,omitempty"`
	// found counts the live items in the source.
	// +optional
	Found int64 `json:"found,omitempty"`
	// added counts the items that were added to their owners.
	// +optional
	Added int64 `json:"added,omitempty"`
	// alreadyPresent counts the items whose owner had a value.
	// +optional
	AlreadyPresent int64 `json:"alreadyPresent,omitempty"`
	// expired counts the items that had expired.
	// +optional
	Expired int64 `json:"expired,omitempty"`
	// invalidated counts the items that were flushed, deleted or stale.
	// +optional
	Invalidated int64 `json:"invalidated,omitempty"`
	// rejected counts the items that their owners refused: too large, or no room.
	// +optional
	Rejected int64 `json:"rejected,omitempty"`
	// leftOut counts the items that were not copied: no room (onShortage: Proceed), not sent when an earlier Job ended,
	// or a key that can't be asked for.
	// +optional
	LeftOut int64 `json:"leftOut,omitempty"`
	// bytes is how many bytes of keys and values were added.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// cantTell names the facts that the source can't tell: see docs/backup.md.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	CantTell []string `json:"cantTell,omitempty"`
	// endedAt is when the last of these Jobs ended.
	EndedAt metav1.Time `json:"endedAt"`
}
