package v1alpha1

// MaxSize is the highest spec.size. Members have the ordinals below it; an object with a higher
// ordinal belongs to no member.
const MaxSize = 512

// LabelCluster is on every object that the operator creates for a Memcached, and on the claims that it
// adopts; its value is the Memcached's name. The operator's cache has only objects with this label. The label
// never proves an object's owner: the UID of the object's controller does or, for a claim, which has no
// controller, its name.
//
// Pods are selected by LabelName and LabelComponent instead, which are in the selector of their StatefulSet
// and can't change: a pod that loses them is no longer a member, and Kubernetes replaces it.
const LabelCluster = Group + "/cluster"

// LabelStatefulSetDrain is on the claims that a StatefulSetDrain protects, has set aside or has found left
// over, and on its Jobs and their pods; its value is the StatefulSetDrain's name. The cache of
// StatefulSetDrains has only objects with this label, which, like LabelCluster, proves nothing.
const LabelStatefulSetDrain = Group + "/statefulsetdrain"

// More labels of these objects, for people and other tools.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelComponent = "app.kubernetes.io/component"

	// AppName is the value of LabelName.
	AppName = "memcached"
	// ManagedBy is LabelManagedBy's value, and the operator's field owner.
	ManagedBy = "memcached-operator"
	// ComponentMember and the others are the values of LabelComponent. A move moves items between
	// running members.
	ComponentMember  = "member"
	ComponentDrainer = "drainer"
	ComponentMove    = "move"
	ComponentRouter  = "router"
)

const (
	// OwnerFinalizer lets the operator stop drains and remove the claims' finalizers
	// before a deleted Memcached disappears.
	OwnerFinalizer = Group + "/cluster"
	// ClaimFinalizer keeps a member's claim, from its creation, until a receipt proves
	// that nothing on its volume would be lost.
	ClaimFinalizer = Group + "/drain"
)

// MaxAnnotation is the longest value, in bytes, of the annotations below that are not JSON. No reader accepts
// a longer value: the cache cuts it, and a cut value could mean something else.
const MaxAnnotation = 128

// Annotations on Memcacheds and StatefulSetDrains.
const (
	// AnnotationOperator names the installation of the operator that manages the object.
	AnnotationOperator = Group + "/operator"
	// AnnotationOtherOperator is another installation's question whether that installation is
	// running, and the answer (package installation, JSON).
	AnnotationOtherOperator = Group + "/other-operator"
	// AnnotationWarmed, on a Memcached, has the record of the copy from spec.warmFrom (package action, JSON).
	AnnotationWarmed = Group + "/warmed"
	// AnnotationWarm is set by a person on a Memcached: WarmAgain, WarmRetry or WarmSkip. The operator removes the
	// annotation when it has acted on it.
	AnnotationWarm = Group + "/warm"
)

// Values of AnnotationWarm.
const (
	// WarmAgain copies the items that the source has got since it was copied.
	WarmAgain = "again"
	// WarmRetry starts a failed warming again at once.
	WarmRetry = "retry"
	// WarmSkip ends the warming: the cluster counts as warm.
	WarmSkip = "skip"
)

// Annotations on members' pods, and on the EndpointSlice NAME-list.
const (
	// AnnotationList, on a pod, is the clients' list in the format of ElastiCache's discovery
	// protocol (contract.List). The kubelet updates the supervisor's file with it at once.
	AnnotationList = Group + "/list"
	// AnnotationListVersion is the version of the list on a pod or a slice, and grows with each change.
	AnnotationListVersion = Group + "/list-version"
	// AnnotationListPorts, on the slice, is a hash of the list's ports if some members have other
	// ports than the slice, while members are replaced for a new port.
	AnnotationListPorts = Group + "/list-ports"
)

// AnnotationStepOut is, on a member's pod, the serial of the ring (package ring) that the member has stepped
// out of for its restart. The member's supervisor makes memcached start empty, once for each serial.
const AnnotationStepOut = Group + "/step-out"

// AnnotationTable is the number, on a router's pod, of the newest table of the rings. Because the
// annotation changes the pod, the kubelet updates the mounted ConfigMap with the table at once.
const AnnotationTable = Group + "/table"

// AnnotationUnlisted is the time (RFC 3339), on the Service of a member, since which the member is
// neither on the clients' list nor running. The Service is deleted some time later.
const AnnotationUnlisted = Group + "/unlisted"

// Annotations on claims.
const (
	// AnnotationLeaving is the leaving mark: the time (RFC 3339) at which the member was told to leave while
	// others stay. From then on the member's values may be old, so the volume never becomes a member's again.
	AnnotationLeaving = Group + "/leaving-since"
	// AnnotationLeft, beside the leaving mark, is the number of the mark: marks that are written
	// later have higher numbers. The time tells no order, because replicas' clocks differ.
	AnnotationLeft = Group + "/left"
	// AnnotationPolicy, beside the leaving mark, is the decision about the volume: the value of
	// spec.drain.policy when the member was told to leave and, after a comma, Release if
	// spec.drain.onUnrecoverable was Release. A later change of the spec doesn't affect this
	// volume.
	AnnotationPolicy = Group + "/policy"
	// AnnotationNeverStarted, beside the leaving mark: the member's first pod had not
	// started a container by then, so the volume is empty.
	AnnotationNeverStarted = Group + "/never-started"
	// AnnotationUnmoved, beside the leaving mark: the member was lost before its items
	// were moved.
	AnnotationUnmoved = Group + "/unmoved"
	// AnnotationProtected, on a claim of a StatefulSet's member, is the UID of the StatefulSetDrain
	// that saw the claim while its ordinal was wanted. Only such claims are drained by themselves: a
	// volumeClaimTemplate may give the finalizer to any claim.
	AnnotationProtected = Group + "/protected"
	// AnnotationAdopted: the claim existed before the member that uses it. Its volume may have more
	// data than a cache, so it is deleted only after a drain, or if a person says so. With the value
	// AdoptedRestored, a backup has brought the claim back after its member left.
	AnnotationAdopted = Group + "/adopted"
	// AnnotationReceipt is the receipt of the drain (package contract, JSON).
	AnnotationReceipt = Group + "/receipt"
	// AnnotationClaimUID, beside the leaving mark and beside AnnotationProtected, is the UID of the claim
	// that these marks are about: a backup brings them back on a claim with another UID. On a claim that is
	// to take over a volume, the value is at first the UID of the claim whose marks are copied.
	//
	// On the Job of a drain and its pod, the value is the UID of the claim that the Job drains.
	AnnotationClaimUID = Group + "/claim-uid"
	// AnnotationAsideOf, on a claim that took over the volume of another claim, is the UID of that
	// claim.
	AnnotationAsideOf = Group + "/aside-of"
	// AnnotationDrain is set by a person: DrainSkip, DrainRetry or DrainHold.
	AnnotationDrain = Group + "/drain"
	// AnnotationMoved, on a member's claim, is the serial of the ring by which the member's items were last
	// moved. On a claim that took over a volume, the value is the serial of the last ring by which clients
	// stored items there.
	AnnotationMoved = Group + "/moved"
	// AnnotationMove is set by a person on a member's claim: MoveRetry or MoveSkip. The operator
	// removes the annotation when it has acted on it.
	AnnotationMove = Group + "/move"
	// AnnotationAttempts is how many attempts of a drain or a move failed in a row, and the UID of
	// the Job of the last one: N/UID.
	AnnotationAttempts = Group + "/attempts"
)

// Values of AnnotationAdopted.
const (
	AdoptedUnlabelled = "true"
	AdoptedRestored   = "restored"
)

// Values of AnnotationMove.
const (
	// MoveRetry starts a failed move again at once.
	MoveRetry = "retry"
	// MoveSkip leaves the member's items where they are.
	MoveSkip = "skip"
)

// AnnotationRing is the record of the ring (package ring, JSON), on the ConfigMap with the
// clients' list.
const AnnotationRing = Group + "/ring"

// Values of AnnotationDrain.
const (
	// DrainSkip gives up the items on the claim's volume: they are not drained.
	DrainSkip = "skip"
	// DrainRetry starts a failed drain again at once. The operator removes the annotation when it
	// has acted on it.
	DrainRetry = "retry"
	// DrainHold starts no drain until the annotation is removed.
	DrainHold = "hold"
)

// Annotations on drain Jobs.
const (
	// AnnotationDrainer, on the Job of a drain or a move, is a hash of its pod template without the
	// drainer's arguments. If the template would differ now, and no pod of the Job has run, the Job
	// is replaced.
	AnnotationDrainer = Group + "/drainer"
	// AnnotationStatefulSet, on the Job of a StatefulSetDrain, is the UID and the generation of the
	// StatefulSet that the Job was made for.
	AnnotationStatefulSet = Group + "/statefulset"
	// AnnotationPorts, on the same Jobs, is a hash of the members' ports when the Job was created.
	// If the ports have changed, the Job is replaced, because it would not reach the members.
	AnnotationPorts = Group + "/ports"
	// AnnotationContainer, on the Job of a StatefulSetDrain and its pods, is the name of the drainer's
	// container, because admission may put others before it.
	AnnotationContainer = Group + "/container"
	// AnnotationClaims, on the Job of a StatefulSetDrain and its pods, has the UIDs of all claims that
	// the Job drains, separated by commas.
	AnnotationClaims = Group + "/claims"
	// AnnotationSurvivors is the number of survivors that the Job adds items to: the
	// ordinals below it. N+M stands for M ordinals from N on.
	AnnotationSurvivors = Group + "/survivors"
	// AnnotationTarget, on a move's Job, names the ring by which it moves items.
	AnnotationTarget = Group + "/target"
	// AnnotationBegin, on a move's Job and its pods, names the same ring. On a pod of a prepared move the
	// value is empty until the move may begin; the kubelet updates the drainer's file at once.
	AnnotationBegin = Group + "/begin"
)

// AnnotationWake is a number that grows, on the StatefulSet that a StatefulSetDrain names. Each change wakes
// the StatefulSet's controller, which does not watch claims, so that it creates a member whose old claim is
// gone. The operator writes nothing else to the StatefulSet.
const AnnotationWake = Group + "/wake"

// AnnotationApplied is a hash, on each object that the operator applies, of the configuration that
// it sent, because admission may have changed the object.
const AnnotationApplied = Group + "/applied"

// AnnotationTemplate says, on the StatefulSet or the Deployment, which specification its template
// was made from, and whether an upgrade of the operator is replacing its pods.
const AnnotationTemplate = Group + "/template"
