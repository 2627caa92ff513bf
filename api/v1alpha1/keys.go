package v1alpha1

// MaxSize is the highest spec.size. Members have the ordinals below it: whatever
// has a higher one is nobody's member.
const MaxSize = 512

// LabelCluster is on every object that the operator makes for a Memcached, and on
// the claims that it adopts; its value is the Memcached's name. The operator sees
// only objects that carry it. It says where to look and never whose an object is:
// that is the UID of its controller, and for claims, which have none, their name.
//
// Pods are the exception. They are selected by LabelName and LabelComponent, which
// are in the selector of their StatefulSet and can't change: a pod without them is
// no member any more, and Kubernetes replaces it.
const LabelCluster = "cache.example.com/cluster"

// Further labels of these objects, for people and other tools.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelComponent = "app.kubernetes.io/component"

	// AppName is LabelName's value.
	AppName = "memcached"
	// ManagedBy is LabelManagedBy's value, and the operator's field owner.
	ManagedBy = "memcached-operator"
	// ComponentMember, ComponentDrainer and ComponentPlacement are LabelComponent's
	// values: a placement moves items between members that run.
	ComponentMember    = "member"
	ComponentDrainer   = "drainer"
	ComponentPlacement = "placement"
)

const (
	// ClusterFinalizer lets the operator stop drains and let go of the claims
	// before a deleted Memcached disappears.
	ClusterFinalizer = "cache.example.com/cluster"
	// ClaimFinalizer holds a member's claim, from its birth, until a receipt
	// proves that nothing on its volume would be lost.
	ClaimFinalizer = "cache.example.com/drain"
)

// MaxAnnotation is the longest value, in bytes, of the annotations below that hold no
// JSON. No reader accepts a longer one: in the cache it is cut, and must mean the same.
const MaxAnnotation = 128

// Annotations on claims.
const (
	// AnnotationReleased is the time (RFC 3339) at which the member left while
	// others stayed. From then on its values may be old: the volume never comes
	// back as a member's.
	AnnotationReleased = "cache.example.com/released"
	// AnnotationNeverStarted, beside the released mark: the member's first pod had
	// not started a container by then, so that nothing was stored before that.
	AnnotationNeverStarted = "cache.example.com/never-started"
	// AnnotationUnplaced, beside the released mark: what the member held was to be
	// placed, and the member was lost before that.
	AnnotationUnplaced = "cache.example.com/unplaced"
	// AnnotationAdopted: the claim was there before the member that uses it. It may have
	// more on its volume than that: only a drain, or a person, lets it be deleted.
	AnnotationAdopted = "cache.example.com/adopted"
	// AnnotationReceipt is the receipt of the drain (package contract, JSON).
	AnnotationReceipt = "cache.example.com/receipt"
	// AnnotationAsideOf, on a claim that takes over the volume of another one, is
	// the other one's UID.
	AnnotationAsideOf = "cache.example.com/aside-of"
	// AnnotationDrain is set by a person: DrainSkip, DrainRetry or DrainHold.
	AnnotationDrain = "cache.example.com/drain"
	// AnnotationPlaced, on a member's claim, is the serial of the clients' list by
	// which the member's items were placed last.
	AnnotationPlaced = "cache.example.com/placed"
	// AnnotationPlacement is set by a person on a member's claim: PlacementRetry or
	// PlacementSkip. The operator removes it when it has done so.
	AnnotationPlacement = "cache.example.com/placement"
	// AnnotationAttempts is how many attempts in a row to move items failed, and the
	// UID of the Job of the last one: N/UID.
	AnnotationAttempts = "cache.example.com/attempts"
)

// Values of AnnotationPlacement.
const (
	// PlacementRetry starts a failed placement once more.
	PlacementRetry = "retry"
	// PlacementSkip leaves the member's items where they are.
	PlacementSkip = "skip"
)

// AnnotationRing is, on the ConfigMap with the clients' list, what decides where
// clients look, and since when members may hold what is looked for elsewhere.
const AnnotationRing = "cache.example.com/ring"

// Values of AnnotationDrain.
const (
	// DrainSkip lets the claim go without a drain: its items are given up.
	DrainSkip = "skip"
	// DrainRetry starts a failed drain once more; the operator removes the
	// annotation when it has done so.
	DrainRetry = "retry"
	// DrainHold starts no drain until the annotation is removed.
	DrainHold = "hold"
)

// Annotations on drain Jobs.
const (
	// AnnotationClaimUID is the UID of the claim that the Job drains.
	AnnotationClaimUID = "cache.example.com/claim-uid"
	// AnnotationSurvivors is the number of members that the Job drains into:
	// the ordinals below it.
	AnnotationSurvivors = "cache.example.com/survivors"
	// AnnotationTarget, on a placement's Job, names the clients' list by which it
	// places items.
	AnnotationTarget = "cache.example.com/target"
)

// AnnotationTemplate is, on the StatefulSet or the Deployment, of which specification
// its template is, and whether an upgrade of the operator is replacing its pods.
const AnnotationTemplate = "cache.example.com/template"
