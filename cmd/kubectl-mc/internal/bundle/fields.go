package bundle

import (
	"maps"
	"strings"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// rule returns the part of a decoded value that stays; of a list, it is asked for each element.
type rule interface{ of(v any, known Known) any }

// fields are an object's. Fields that are not named here are left out.
type fields map[string]rule

func (f fields) of(v any, known Known) any {
	object, is := v.(map[string]any)
	if !is {
		return hidden
	}
	kept := map[string]any{}
	for name, r := range f {
		if value, has := object[name]; has {
			kept[name] = stays(r, value, known)
		}
	}
	return kept
}

func stays(r rule, v any, known Known) any {
	list, is := v.([]any)
	if !is {
		return r.of(v, known)
	}
	for i := range list {
		list[i] = stays(r, list[i], known)
	}
	return list
}

// leaf is a rule for a value without fields.
type leaf func(v any, known Known) any

func (l leaf) of(v any, known Known) any { return l(v, known) }

var (
	// plain is for a number, or a word that Kubernetes, the operator or the cluster's administrator has
	// chosen.
	plain = leaf(func(v any, _ Known) any {
		if _, is := v.(map[string]any); is {
			return hidden
		}
		return v
	})
	// words is for a text of which only known words stay.
	words = leaf(func(v any, known Known) any {
		if text, is := v.(string); is {
			return known.Line(text)
		}
		return hidden
	})
	// covered is for a value of which only its existence is told.
	covered = leaf(func(any, Known) any { return hidden })
)

// named are plain fields.
func named(names string) fields {
	f := fields{}
	for _, name := range strings.Fields(names) {
		f[name] = plain
	}
	return f
}

// and returns the fields, and more.
func (f fields) and(more fields) fields {
	f = maps.Clone(f)
	maps.Copy(f, more)
	return f
}

// texts are fields of text.
func texts(names ...string) fields {
	f := fields{}
	for _, name := range names {
		f[name] = words
	}
	return f
}

var (
	annotations = texts(
		cachev1alpha1.AnnotationOperator, cachev1alpha1.AnnotationOtherOperator, cachev1alpha1.AnnotationList, cachev1alpha1.AnnotationListVersion,
		cachev1alpha1.AnnotationListPorts, cachev1alpha1.AnnotationTable, cachev1alpha1.AnnotationUnlisted, cachev1alpha1.AnnotationLeaving,
		cachev1alpha1.AnnotationLeft, cachev1alpha1.AnnotationPolicy, cachev1alpha1.AnnotationNeverStarted, cachev1alpha1.AnnotationUnmoved,
		cachev1alpha1.AnnotationProtected, cachev1alpha1.AnnotationAdopted, cachev1alpha1.AnnotationReceipt, cachev1alpha1.AnnotationAsideOf,
		cachev1alpha1.AnnotationDrain, cachev1alpha1.AnnotationMoved, cachev1alpha1.AnnotationMove, cachev1alpha1.AnnotationAttempts,
		cachev1alpha1.AnnotationRing, cachev1alpha1.AnnotationStatefulSet, cachev1alpha1.AnnotationContainer, cachev1alpha1.AnnotationClaimUID,
		cachev1alpha1.AnnotationClaims, cachev1alpha1.AnnotationSurvivors, cachev1alpha1.AnnotationTarget, cachev1alpha1.AnnotationBegin,
		cachev1alpha1.AnnotationWake, cachev1alpha1.AnnotationTemplate,
	)
	labels = texts(
		cachev1alpha1.LabelCluster, cachev1alpha1.LabelStatefulSetDrain, cachev1alpha1.LabelName, cachev1alpha1.LabelInstance,
		cachev1alpha1.LabelManagedBy, cachev1alpha1.LabelComponent,
	)
	metadata = named("name namespace uid resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds").and(fields{
		"labels": labels, "annotations": annotations, "finalizers": words, "ownerReferences": named("kind name uid controller"),
	})

	amounts   = named("cpu memory ephemeral-storage storage")
	resources = fields{"requests": amounts, "limits": amounts}
	selector  = fields{"matchLabels": labels}
	// reasons are conditions without their messages: the kubelet, the scheduler or admission may have written them.
	reasons = named("type status reason lastTransitionTime observedGeneration")
	// conditions are the operator's own.
	conditions = reasons.and(texts("message"))
	container  = named("name image imagePullPolicy restartPolicy").and(fields{
		"resources": resources, "env": named("name"), "ports": named("name containerPort protocol"), "volumeMounts": named("name readOnly"),
	})
	pod = named("nodeName restartPolicy terminationGracePeriodSeconds priority serviceAccountName hostNetwork").and(fields{
		"containers": container, "initContainers": container,
		"volumes": named("name").and(fields{
			"persistentVolumeClaim": named("claimName readOnly"), "secret": named("secretName"), "configMap": named("name"), "emptyDir": named("sizeLimit"),
		}),
	})
	template       = fields{"metadata": fields{"labels": labels, "annotations": annotations}, "spec": pod}
	containerState = fields{
		"running": named("startedAt"), "waiting": named("reason"), "terminated": named("exitCode signal reason startedAt finishedAt"),
	}
	containerStatus = named("name image ready restartCount started").and(fields{"state": containerState, "lastState": containerState})
	podTemplate     = named("priorityClassName schedulerName runtimeClassName terminationGracePeriodSeconds spread serviceAccountName").and(pod).and(fields{
		"labels": covered, "annotations": covered, "nodeSelector": covered, "affinity": covered, "tolerations": covered,
		"topologySpreadConstraints": covered, "securityContext": covered, "env": named("name"),
	})
	service = named("type").and(fields{"labels": covered, "annotations": covered})
	claim   = named("accessModes storageClassName volumeName volumeMode").and(fields{"resources": resources})
)

// kept has the rules of each kind, by its Go type.
var kept = map[string]fields{
	"Memcached": {
		"metadata": metadata,
		"spec": named("size paused containerPort image memory maxItemSize threads maxConnections").and(fields{
			"extraArgs": covered, "tls": named("secretName clientAuth"), "auth": named("secretName"), "binding": named("secretName"),
			"resources": resources, "podTemplate": podTemplate, "service": service,
			"storage":   named("size storageClassName mode"),
			"routing":   named("client addresses moves patience").and(fields{"keyPrefix": covered, "serverName": covered}),
			"discovery": named("port"),
			"router": named("replicas exclusive failedReads").and(fields{
				"resources": resources, "podTemplate": podTemplate, "service": service,
			}),
			"drain": named("policy whenDeleted parallelism backoffLimit activeDeadline onUnrecoverable onShortage skipExpiringWithin").and(fields{
				"resources": resources, "podTemplate": podTemplate, "rateLimit": named("itemsPerSecond bytesPerSecond"),
			}),
			"podDisruptionBudget": named("enabled maxUnavailable"),
			"networkPolicy":       fields{"clients": covered, "monitoring": covered},
			"metrics":             named("port").and(fields{"serviceMonitor": named("interval").and(fields{"labels": covered})}),
		}),
		"status": named("observedGeneration phase size readySize servers serviceMonitor nodes draining moving latePercent").and(fields{
			"selector": covered, "progress": words, "router": named("address replicas ready behind"), "binding": named("name"),
			"drains": named(`claim ordinal phase since itemsDone itemsTotal itemsMoved bytesDone bytesTotal timeLeft reason leavingSince
				startedAt`).and(texts("message")),
			"lastDrains": named("claim claimUID result moved notMoved found added alreadyPresent expired invalidated bytes unclean duration endedAt"),
			"advice":     named("reason").and(texts("message")),
			"conditions": conditions,
		}),
	},
	// The drainer is a person's, and the operator's messages may quote its words.
	"StatefulSetDrain": {
		"metadata": metadata,
		"spec": named("statefulSetName policy parallelism backoffLimit activeDeadline").and(fields{
			"receipt": covered, "template": fields{"spec": pod},
		}),
		"status": named("observedGeneration replicas readyReplicas draining progress leftOver").and(fields{
			"drains":     named("ordinal claims phase since done total reason leavingSince startedAt"),
			"lastDrains": named("ordinal claims result duration endedAt"),
			"conditions": reasons,
		}),
	},
	"StatefulSet": {
		"metadata": metadata,
		"spec": named("replicas serviceName podManagementPolicy revisionHistoryLimit minReadySeconds").and(fields{
			"selector": selector, "template": template, "updateStrategy": named("type").and(fields{"rollingUpdate": named("partition maxUnavailable")}),
			"volumeClaimTemplates":                 fields{"metadata": named("name"), "spec": claim},
			"persistentVolumeClaimRetentionPolicy": named("whenDeleted whenScaled"),
		}),
		"status": named("observedGeneration replicas readyReplicas currentReplicas updatedReplicas availableReplicas currentRevision updateRevision"),
	},
	"Deployment": {
		"metadata": metadata,
		"spec": named("replicas minReadySeconds progressDeadlineSeconds").and(fields{
			"selector": selector, "template": template, "strategy": named("type").and(fields{"rollingUpdate": named("maxSurge maxUnavailable")}),
		}),
		"status": named("observedGeneration replicas readyReplicas updatedReplicas availableReplicas unavailableReplicas").and(fields{"conditions": reasons}),
	},
	"Pod": {
		"metadata": metadata,
		"spec":     pod,
		"status": named("phase reason podIP hostIP startTime qosClass").and(fields{
			"conditions": reasons, "containerStatuses": containerStatus, "initContainerStatuses": containerStatus,
		}),
	},
	"PersistentVolumeClaim": {
		"metadata": metadata,
		"spec":     claim,
		"status":   named("phase accessModes").and(fields{"capacity": amounts, "conditions": reasons}),
	},
	"Job": {
		"metadata": metadata,
		"spec": named("parallelism completions backoffLimit activeDeadlineSeconds suspend ttlSecondsAfterFinished podReplacementPolicy").and(fields{
			"template": template,
		}),
		"status": named("active ready succeeded failed terminating startTime completionTime").and(fields{"conditions": reasons}),
	},
	// status.servers is what the drainer says.
	"ConfigMap": {"metadata": metadata},
	"Service": {
		"metadata": metadata,
		"spec": named("type clusterIP clusterIPs ipFamilies ipFamilyPolicy publishNotReadyAddresses").and(fields{
			"selector": labels, "ports": named("name port targetPort protocol"),
		}),
	},
	"EndpointSlice": {
		"metadata": metadata, "addressType": plain, "ports": named("name port protocol"),
		"endpoints": named("addresses hostname nodeName").and(fields{
			"conditions": named("ready serving terminating"), "targetRef": named("kind name uid"),
		}),
	},
	"PodDisruptionBudget": {
		"metadata": metadata,
		"spec":     named("minAvailable maxUnavailable").and(fields{"selector": selector}),
		"status":   named("observedGeneration currentHealthy desiredHealthy disruptionsAllowed expectedPods").and(fields{"conditions": reasons}),
	},
	"NetworkPolicy": {"metadata": metadata, "spec": named("policyTypes").and(fields{"podSelector": selector})},
}
