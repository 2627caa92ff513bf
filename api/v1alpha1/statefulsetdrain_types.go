package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// StatefulSetDrainSpec says which StatefulSet's departed members are drained, and how.
//
// +kubebuilder:validation:XValidation:rule="self.statefulSetName == oldSelf.statefulSetName",message="statefulSetName can't be changed: create another StatefulSetDrain"
type StatefulSetDrainSpec struct {
	// statefulSetName is the name of the StatefulSet, in the same namespace, which may be created later. The
	// field can't be changed, and no other StatefulSetDrain may name the same StatefulSet.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="statefulSetName must be the name of a StatefulSet, such as queue"
	StatefulSetName string `json:"statefulSetName"`
	// template of the pod that drains the volumes of one member. Its first container is the drainer,
	// which may be killed at any time and run again. Success is exit code 0.
	Template DrainTemplate `json:"template"`
	// policy for the volumes of a member, decided when it departs: Drain (the default), Retain or Delete.
	// +optional
	// +kubebuilder:default=Drain
	Policy DrainPolicy `json:"policy,omitempty"`
	// receipt is a CEL expression that has to be true of the drainer's termination message, JSON of at most 4096
	// bytes. Otherwise the drain has failed, and no volume is released. If unset, exit code 0 is enough, unless the
	// pod was told to end: it was deleted or evicted, or its deadline or its node ended it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('(^|[^A-Za-z0-9_.])receipt([^A-Za-z0-9_]|$)')",message="receipt must be a CEL expression about the drainer's termination message, which it calls receipt, such as: receipt.found == receipt.moved + receipt.skipped"
	Receipt string `json:"receipt,omitempty"`
	// parallelism is how many members are drained at once, highest ordinals first. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Parallelism int32 `json:"parallelism,omitempty"`
	// backoffLimit is how often a failed pod of a drain is replaced at once. After that the drain is tried
	// again, at growing intervals. Defaults to 6.
	// +optional
	// +kubebuilder:default=6
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// activeDeadline is how long one pod of a drain may run, without the time that it waits for a node.
	// Defaults to 1h; template.spec.activeDeadlineSeconds has precedence.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') && duration(self) >= duration('30s') && duration(self) <= duration('8760h')",message="activeDeadline must be from 30s to 8760h, such as 1h30m; the longest unit is h"
	ActiveDeadline *metav1.Duration `json:"activeDeadline,omitempty"`
}

// DrainTemplate is the pod template of a drain.
type DrainTemplate struct {
	// metadata of the drainers' pods and of their Jobs.
	// +optional
	Metadata DrainTemplateMetadata `json:"metadata,omitzero"`
	// spec is the pod's spec, as in a Job. The operator checks it with the API server before the first drain,
	// and adds the departed member's volumes, environment variables (docs/statefulsets.md), and restartPolicy
	// Never if none is set.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Spec runtime.RawExtension `json:"spec"`
}

// DrainTemplateMetadata has the labels and annotations of the pods of drains.
type DrainTemplateMetadata struct {
	// labels of the pods; at most 64. The StatefulSet's selector must not match them. The operator's
	// own keys win. Defaults to none.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="template.metadata.labels: a key has at most 317 characters, a value 63"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('cache.example.com/') && !k.startsWith('batch.kubernetes.io/') && k != 'job-name' && k != 'controller-uid')",message="template.metadata.labels must not have keys of cache.example.com, nor of batch.kubernetes.io, job-name and controller-uid, which are Kubernetes' own"
	Labels map[string]string `json:"labels,omitempty"`
	// annotations of the pods; at most 64. Defaults to none.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 4096)",message="template.metadata.annotations: a key has at most 317 characters, a value 4096"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('cache.example.com/') && !k.startsWith('batch.kubernetes.io/'))",message="template.metadata.annotations must not have keys of cache.example.com, nor of batch.kubernetes.io, which is Kubernetes' own"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// StatefulSetDrainStatus has the observed state of a StatefulSet and its departed members.
type StatefulSetDrainStatus struct {
	// observedGeneration is that of the spec.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// replicas is how many members the StatefulSet wants.
	// +optional
	Replicas int32 `json:"replicas"`
	// readyReplicas is how many of them are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// draining is the number of departed members whose volumes are not drained yet.
	// +optional
	Draining int32 `json:"draining,omitempty"`
	// progress of the running drains, in percent of their drainers' totals.
	// +optional
	Progress string `json:"progress,omitempty"`
	// drains has each leaving or departed member, highest ordinals first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Drains []MemberDrain `json:"drains,omitempty"`
	// lastDrains are the last drains that ended, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	LastDrains []MemberDrained `json:"lastDrains,omitempty"`
	// leftOver are claims of ordinals that were not wanted when they were first seen, and claims with departed members'
	// volumes that an earlier StatefulSetDrain has left. None is drained, unless a person annotates one claim of a
	// member with cache.example.com/drain=retry.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	LeftOver []string `json:"leftOver,omitempty"`
	// conditions are Ready, Progressing and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MemberDrain is the drain of one member's volumes.
type MemberDrain struct {
	// ordinal of the member.
	Ordinal int32 `json:"ordinal"`
	// claims that have the member's volumes now.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Claims []string `json:"claims,omitempty"`
	// phase of the drain.
	Phase DrainPhase `json:"phase"`
	// since is when the drain entered this phase.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// done is the drainer's count so far.
	// +optional
	Done int64 `json:"done,omitempty"`
	// total is the drainer's count at its end.
	// +optional
	Total int64 `json:"total,omitempty"`
	// reason why the drain waits, is held or failed: one of docs/runbook.md, or the scheduler's or the kubelet's
	// own.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason, and says what a person can do.
	// +optional
	Message string `json:"message,omitempty"`
	// leavingSince is when the member was no longer wanted.
	// +optional
	LeavingSince *metav1.Time `json:"leavingSince,omitempty"`
	// startedAt is when the Job was created.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
}

// MemberDrained is the result of a drain whose claims were released.
type MemberDrained struct {
	// ordinal of the member.
	Ordinal int32 `json:"ordinal"`
	// claims that had the member's volumes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Claims []string `json:"claims,omitempty"`
	// result is Drained, or why there was no drain: Skipped, Deleted, Retained, NeverBound, Returned.
	Result string `json:"result"`
	// message is the drainer's termination message, of at most 4096 bytes.
	// +optional
	Message string `json:"message,omitempty"`
	// duration is the time from leavingSince to endedAt, in whole seconds.
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
	// endedAt is when the last finalizer was removed.
	EndedAt metav1.Time `json:"endedAt"`
}

// StatefulSetDrain drains the volumes of a StatefulSet's departed members, by a Job of the user's, before the
// volumes are deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=stsdrain,categories=all
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.statefulSetName`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Draining",type=integer,JSONPath=`.status.draining`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name must be a DNS label of at most 63 characters: it is the value of a label"
type StatefulSetDrain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which StatefulSet's departed members are drained, and how.
	Spec StatefulSetDrainSpec `json:"spec"`
	// status is the observed state of the StatefulSet and its departed members.
	// +optional
	Status StatefulSetDrainStatus `json:"status,omitempty"`
}

// StatefulSetDrainList is a list of StatefulSetDrain.
//
// +kubebuilder:object:root=true
type StatefulSetDrainList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StatefulSetDrain `json:"items"`
}
