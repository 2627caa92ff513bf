package v1alpha1

// Condition types. Ready, Available, Progressing and Degraded are always there, the others while
// they have something to say.
const (
	// ConditionReady: the cluster is as the spec wants it, and no items have to be moved or
	// drained.
	ConditionReady = "Ready"
	// ConditionAvailable: every wanted member is ready.
	ConditionAvailable = "Available"
	// ConditionProgressing: the cluster is changing to what the spec wants.
	ConditionProgressing = "Progressing"
	// ConditionDegraded: something needs a person.
	ConditionDegraded = "Degraded"
	// ConditionDraining: volumes are to be drained; false if only failed or held drains are left.
	ConditionDraining = "Draining"
	// ConditionMoving: items are being moved to the members where clients look for them after a change of the
	// list or the routing; false if the items stay where they are.
	ConditionMoving = "Moving"
	// ConditionMonitored is false if no ServiceMonitor can select the members.
	ConditionMonitored = "Monitored"
	// ConditionBindable is false if applications don't find what they need in the Secret of spec.binding.
	ConditionBindable = "Bindable"
	// ConditionCertificateValid is false if a certificate of spec.tls can't be used or ends within a
	// week, and unknown if no pod can be asked.
	ConditionCertificateValid = "CertificateValid"
	// ConditionRoutersReady is false if a wanted router is not ready, or not of the present specification.
	ConditionRoutersReady = "RoutersReady"
)

// Reasons of conditions and of status.advice. docs/runbook.md has a section on each.
const (
	// ReasonReady: every wanted member is ready.
	ReasonReady = "Ready"
	// ReasonMembersNotReady: some wanted member is not ready.
	ReasonMembersNotReady = "MembersNotReady"
	// ReasonRoutersNotReady: some wanted router is not ready, or is being replaced.
	ReasonRoutersNotReady = "RoutersNotReady"
	// ReasonHibernated: size is 0; the volumes wait for the members' return.
	ReasonHibernated = "Hibernated"
	// ReasonScaledToZero: size is 0, and there is no storage.
	ReasonScaledToZero = "ScaledToZero"
	// ReasonScaling: members come or go.
	ReasonScaling = "Scaling"
	// ReasonRolling: members are being replaced, one at a time.
	ReasonRolling = "Rolling"
	// ReasonWaitingForDrain: the size changes when the drains have ended.
	ReasonWaitingForDrain = "WaitingForDrain"
	// ReasonBlockedByVolume: a member can't return while the volume that it left
	// earlier is still there (its drain failed or is held, or it is retained).
	ReasonBlockedByVolume = "BlockedByVolume"
	// ReasonAsWanted: the cluster is as the spec wants it.
	ReasonAsWanted = "AsWanted"
	// ReasonDraining: volumes are being drained.
	ReasonDraining = "Draining"
	// ReasonDrainFailed: a drain failed; the claim is kept. The condition Draining has it
	// only if no other drain is under way or waits.
	ReasonDrainFailed = "DrainFailed"
	// ReasonDrainHeld: a person holds a drain by annotation. The condition Draining has it
	// only if nothing else is left to drain.
	ReasonDrainHeld = "DrainHeld"
	// ReasonClaimDeleted: a claim that is not drained was deleted; the finalizer keeps it.
	ReasonClaimDeleted = "ClaimDeleted"
	// ReasonReconcileError: a call to the API server failed.
	ReasonReconcileError = "ReconcileError"
	// ReasonInvalidSpec: the API server refuses an object that the spec asks for.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNameTaken: another owner's object has a name that the cluster needs.
	ReasonNameTaken = "NameTaken"
	// ReasonHealthy: nothing needs a person.
	ReasonHealthy = "Healthy"
	// ReasonAddressesHashed: the clients hash the members' IP addresses, which change.
	ReasonAddressesHashed = "AddressesHashed"
	// ReasonOtherKeysMove: a scale-down changes where clients look for keys of
	// survivors.
	ReasonOtherKeysMove = "OtherKeysMove"
	// ReasonShortOfMemory: the leaving members have more items than the survivors have
	// room for.
	ReasonShortOfMemory = "ShortOfMemory"
	// ReasonMemoryUnknown: a scale-down that should wait for room doesn't, because the operator can't
	// ask the members.
	ReasonMemoryUnknown = "MemoryUnknown"
	// ReasonNoRoomToReplay: the volumes have room for one warm file only, so a member
	// whose memcached can't resume starts cold.
	ReasonNoRoomToReplay = "NoRoomToReplay"
	// ReasonGracePeriodTooShort: at the rate of a member's last save, a full member would be killed
	// before it has saved everything.
	ReasonGracePeriodTooShort = "GracePeriodTooShort"
	// ReasonStartedCold: a member ended without a save, and its volume had no room for
	// a second file, so its items could not be replayed; or, in mode Saved, its pod was
	// lost with them.
	ReasonStartedCold = "StartedCold"
	// ReasonNotFilled: the source of spec.warmFrom could not be copied within its patience.
	ReasonNotFilled = "NotFilled"
	// ReasonVolumesGrow: volumes are asked to grow, and have not yet.
	ReasonVolumesGrow = "VolumesGrow"
	// ReasonVolumesWait: volumes are to grow with memory, and no member is ready with the new
	// memory yet.
	ReasonVolumesWait = "VolumesWait"
	// ReasonVolumesCannotGrow: the API server refuses to let a volume grow.
	ReasonVolumesCannotGrow = "VolumesCannotGrow"
	// ReasonServiceMonitorUnknown: the cluster doesn't have the kind
	// ServiceMonitor, which the spec asks for.
	ReasonServiceMonitorUnknown = "ServiceMonitorUnknown"
	// ReasonBindingForbidden: the operator lacks a right to the Secret of spec.binding,
	// or to one that it is made of.
	ReasonBindingForbidden = "BindingForbidden"
	// ReasonBindingIncomplete: a Secret that the binding needs is missing or invalid.
	ReasonBindingIncomplete = "BindingIncomplete"
	// ReasonSecretInvalid: a member or a drainer can't use a Secret with certificates
	// or logins.
	ReasonSecretInvalid = "SecretInvalid"
	// ReasonVersionTooOld: the memcached of a member's image is too old for a member with storage.
	ReasonVersionTooOld = "VersionTooOld"
	// ReasonVolumeFull, ReasonVolumeReadOnly, ReasonVolumeFailed: a member has ended because a
	// write to its volume failed.
	ReasonVolumeFull     = "VolumeFull"
	ReasonVolumeReadOnly = "VolumeReadOnly"
	ReasonVolumeFailed   = "VolumeFailed"
	// ReasonStillCalled: a leaving member waits for clients that still call it.
	ReasonStillCalled = "StillCalled"
	// ReasonPaused: spec.paused stops the operator from changing anything.
	ReasonPaused = "Paused"
	// ReasonCrashLoop: a container of a member ends again and again.
	ReasonCrashLoop = "CrashLoop"
	// ReasonImageUnavailable: an image of a member can't be pulled.
	ReasonImageUnavailable = "ImageUnavailable"
	// ReasonContainerNotCreated: the kubelet can't create a container of a member.
	ReasonContainerNotCreated = "ContainerNotCreated"
	// ReasonUnschedulable: the scheduler finds no node for a member's pod.
	ReasonUnschedulable = "Unschedulable"
	// ReasonMemberDoesNotEnd: a member was told to end, and its node has not reported its
	// end.
	ReasonMemberDoesNotEnd = "MemberDoesNotEnd"
	// ReasonDrainerDoesNotEnd: the pod of a drain or a move was told to end, and its node has not
	// reported its end. Until then no other pod can use its volume, or the size can't change.
	ReasonDrainerDoesNotEnd = "DrainerDoesNotEnd"
	// ReasonKeptByFinalizer: an object of the cluster was deleted, and another owner's finalizer
	// keeps it.
	ReasonKeptByFinalizer = "KeptByFinalizer"
	// ReasonCertificateEnds: a certificate ends within a week.
	ReasonCertificateEnds = "CertificateEnds"
	// ReasonCertificateExpired: the certificate has expired.
	ReasonCertificateExpired = "CertificateExpired"
	// ReasonCertificateInvalid: a pod can't use the files of the Secret, such as a key that doesn't match.
	ReasonCertificateInvalid = "CertificateInvalid"
	// ReasonCertificateUnknown: the operator can't ask the pods.
	ReasonCertificateUnknown = "CertificateUnknown"
	// ReasonNodesUnknown: the operator may not watch nodes, and podDisruptionBudget.evictions needs that.
	ReasonNodesUnknown = "NodesUnknown"
	// ReasonOtherOperator: another installation of the operator watches the same namespace.
	ReasonOtherOperator = "OtherOperator"
	// ReasonPodNotCreated: the API server refuses a pod of a member or of a drainer, because of a
	// quota or an admission policy.
	ReasonPodNotCreated = "PodNotCreated"
	// ReasonStepRefused: the operator has refused a step for a minute or longer.
	ReasonStepRefused = "StepRefused"
	// ReasonSizeChangedByAdmission: an admission policy changes the number of members or routers that
	// the operator asks for.
	ReasonSizeChangedByAdmission = "SizeChangedByAdmission"
	// ReasonAddressFamily: the list in DNS leaves out members that have no address of its family.
	ReasonAddressFamily = "AddressFamily"
	// ReasonDrainStuck: a drain's drainer has not been at work for a minute.
	ReasonDrainStuck = "DrainStuck"
	// ReasonMoveStuck: a move's drainer has not been at work for a minute.
	ReasonMoveStuck = "MoveStuck"
	// ReasonWaitingForTurn: only an upgrade of the operator asks for members to be
	// replaced, and other clusters go first.
	ReasonWaitingForTurn = "WaitingForTurn"
	// ReasonDeleting: the Memcached is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonMoving: items are being moved between members.
	ReasonMoving = "Moving"
	// ReasonMoveWaits: items have to be moved, and another step comes first.
	ReasonMoveWaits = "MoveWaits"
	// ReasonMoveFailed: a move failed; the items stay where they are.
	ReasonMoveFailed = "MoveFailed"
	// ReasonMovesOff: items stay where they are, because the spec says so.
	ReasonMovesOff = "MovesOff"
	// ReasonWaitingForMove: the size changes when items are moved.
	ReasonWaitingForMove = "WaitingForMove"
	// ReasonWarming: the cluster is being filled from spec.warmFrom.
	ReasonWarming = "Warming"
	// ReasonWarmFailed: the cluster could not be filled from spec.warmFrom.
	ReasonWarmFailed = "WarmFailed"
	// ReasonWarmStuck: the drainer of a warming has not been at work for a minute.
	ReasonWarmStuck = "WarmStuck"
	// ReasonSourceNotThere: spec.warmFrom names a Memcached or claims that don't exist, or can't be read now.
	ReasonSourceNotThere = "SourceNotThere"
	// ReasonListingRefused: the source of spec.warmFrom doesn't list its items.
	ReasonListingRefused = "ListingRefused"
	// ReasonTargetTooSmall: the source of spec.warmFrom has more items than the cluster has room for.
	ReasonTargetTooSmall = "TargetTooSmall"
)

// Reasons of StatefulSetDrains alone.
const (
	// ReasonUnprotected: a claim of a wanted member lacks the finalizer.
	ReasonUnprotected = "Unprotected"
	// ReasonNoStatefulSet: there is no StatefulSet of the name, so nothing departs.
	ReasonNoStatefulSet = "NoStatefulSet"
	// ReasonStatefulSetTaken: an older StatefulSetDrain names the StatefulSet.
	ReasonStatefulSetTaken = "StatefulSetTaken"
	// ReasonStatefulSetOfMemcached: a Memcached controls the StatefulSet.
	ReasonStatefulSetOfMemcached = "StatefulSetOfMemcached"
	// ReasonTemplateRefused: no Job can be made of spec.template.
	ReasonTemplateRefused = "TemplateRefused"
	// ReasonReceiptRuleInvalid: spec.receipt is no CEL expression that is true or false.
	ReasonReceiptRuleInvalid = "ReceiptRuleInvalid"
)

// ReasonNothingDrains is the reason of an event on a claim that was deleted: our finalizer keeps it, and it
// belongs to no Memcached and no StatefulSetDrain.
const ReasonNothingDrains = "NothingDrains"

// Reasons of drains that wait, are held or failed (DrainStatus.Reason). The reason of a failed
// drainer comes from its receipt.
const (
	ReasonPodPresent     = "PodPresent"     // the leaving member's pod is still there
	ReasonInTurn         = "InTurn"         // another drain or a move comes first
	ReasonHibernating    = "Hibernating"    // no member runs that could take items
	ReasonHeld           = "Held"           // AnnotationDrain is hold
	ReasonReceiptInvalid = "ReceiptInvalid" // the receipt doesn't add up, or is missing
	ReasonJobFailed      = "JobFailed"      // the Job gave up without a receipt
	ReasonSettingAside   = "SettingAside"   // the volume is bound to another claim
	ReasonJobSuspended   = "JobSuspended"   // a queue or a person has suspended the Job
	ReasonNoPodYet       = "NoPodYet"       // the Job's pod does not exist, and no reason is reported
	ReasonRetrying       = "Retrying"       // the last drainer failed; the next one is about to start
	ReasonRefused        = "Refused"        // the API server refuses a step about the claim
	ReasonJobVanished    = "JobVanished"    // its Jobs are deleted before the operator knows how they ended

	// ReasonSurvivorUnreachable: the drainer waits for a survivor, or gave up waiting.
	ReasonSurvivorUnreachable = "SurvivorUnreachable"
	// ReasonSourceUnreachable: a move waits for the member whose items it moves.
	ReasonSourceUnreachable = "SourceUnreachable"
)
