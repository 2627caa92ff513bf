package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Warm has the known facts about the source of spec.warmFrom.
type Warm struct {
	// From is how the source is reached; nil if the source is claims, or is not known. If it is not there, routers may know
	// it yet.
	From *build.From
	// NotThere says why the source can't be read now.
	NotThere string
	// Claims are the source's claims that are left to be read, in order, also if one of them can't be read now.
	Claims []corev1.PersistentVolumeClaim
}

// WarmRecord is the record of the copy from the cluster's spec.warmFrom. Any client may have written the
// record, and a backup may have brought it from another Memcached.
func WarmRecord(c *cachev1alpha1.Memcached) action.WarmRecord {
	r, err := action.ParseWarmRecord(c.Annotations[cachev1alpha1.AnnotationWarmed])
	if err != nil || r.UID != c.UID || c.Spec.WarmFrom == nil || r.Source != build.WarmSource(c) {
		return action.WarmRecord{}
	}
	return r
}

// warmAsked returns a person's request about the warming. repeats: the request is for another copy.
func warmAsked(c *cachev1alpha1.Memcached) (asked string, request claims.Request, repeats bool) {
	switch asked = c.Annotations[cachev1alpha1.AnnotationWarm]; asked {
	case cachev1alpha1.WarmSkip:
		return asked, claims.Skip, false
	case cachev1alpha1.WarmRetry:
		return asked, claims.Retry, false
	case cachev1alpha1.WarmAgain:
		return asked, claims.NoRequest, true
	}
	return "", claims.NoRequest, false
}

// FailedBefore is the record of a source that the spec has no more, and that had failed when it was removed; nil if there is
// none.
func FailedBefore(c *cachev1alpha1.Memcached) *action.WarmRecord {
	r, err := action.ParseWarmRecord(c.Annotations[cachev1alpha1.AnnotationWarmed])
	if err != nil || r.Since.IsZero() || c.Spec.WarmFrom != nil && r.Source == build.WarmSource(c) {
		return nil
	}
	return &r
}

// WarmAttempts is how many attempts of the warming have failed in a row.
func WarmAttempts(c *cachev1alpha1.Memcached) int32 {
	if c.Spec.WarmFrom == nil {
		return 0
	}
	return read.Attempts(c.Annotations[cachev1alpha1.AnnotationAttempts]).Failed
}

// observeWarm looks at the source, if there is something to copy from it.
func (r *Reader) observeWarm(ctx context.Context, o *State) error {
	spec := o.Cluster.Spec.WarmFrom
	if o.Cluster.DeletionTimestamp != nil {
		return nil
	}
	if spec == nil {
		if asked, _, _ := warmAsked(o.Cluster); asked != "" || o.Cluster.Annotations[cachev1alpha1.AnnotationAttempts] != "" || FailedBefore(o.Cluster) != nil {
			o.Warm = &Warm{} // these are to be removed: they must not be about a later source
		}
		return nil
	}
	o.Warm = &Warm{}
	record := WarmRecord(o.Cluster)
	_, _, repeats := warmAsked(o.Cluster)
	open := record.Result == action.WarmOpen || repeats
	switch {
	case !open && !spec.OnMiss:
		return nil
	case spec.Volumes != nil:
		return r.observeWarmClaims(ctx, o, &record)
	case spec.Memcached != "":
		return r.observeWarmMemcached(ctx, o)
	}
	o.Warm.From = build.WarmFrom(o.Cluster)
	return nil
}

func (r *Reader) observeWarmMemcached(ctx context.Context, o *State) error {
	source, err := read.Get[cachev1alpha1.Memcached](ctx, r.Cache, client.ObjectKey{Namespace: o.Cluster.Namespace, Name: o.Cluster.Spec.WarmFrom.Memcached})
	switch {
	case err != nil:
		return err
	case source == nil:
		o.Warm.NotThere = fmt.Sprintf("there is no Memcached %s", o.Cluster.Spec.WarmFrom.Memcached)
	default:
		if o.Warm.From = build.WarmFromMemcached(source); o.Warm.From == nil {
			o.Warm.NotThere = fmt.Sprintf("Memcached %s has no servers on its list", source.Name)
			o.Warm.From = build.OnMissOf(source, o.Routers.Deployment) // routers are not rolled out for a moment
		}
	}
	return nil
}

// observeWarmClaims reads the source's claims live: they don't have the operator's label, so the cache lacks them.
func (r *Reader) observeWarmClaims(ctx context.Context, o *State, record *action.WarmRecord) error {
	selector, err := metav1.LabelSelectorAsSelector(&o.Cluster.Spec.WarmFrom.Volumes.Selector)
	if err != nil {
		o.Warm.NotThere = fmt.Sprintf("warmFrom.volumes.selector: %v", err)
		return nil
	}
	var list corev1.PersistentVolumeClaimList
	err = r.Live.List(ctx, &list, client.InNamespace(o.Cluster.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(action.MaxWarmClaims+1))
	if err != nil {
		return fmt.Errorf("list the claims of warmFrom.volumes: %w", err)
	}
	all, why := build.WarmClaims(o.Cluster, list.Items)
	switch {
	case why != "":
	case len(list.Items) == 0 && len(record.Claims) == 0:
		why = "warmFrom.volumes.selector selects no claim"
	case len(list.Items) > action.MaxWarmClaims || list.Continue != "":
		why = fmt.Sprintf("warmFrom.volumes.selector selects more than %d claims", action.MaxWarmClaims)
	}
	all = slices.DeleteFunc(all, func(c corev1.PersistentVolumeClaim) bool {
		return slices.Contains(record.Claims, plan.ClaimHash(c.UID))
	})
	all = all[:min(len(all), action.MaxWarmClaims)]
	o.Warm.NotThere, o.Warm.Claims = why, all
	if why != "" || len(all) == 0 || len(o.Warms) > 0 {
		return nil
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
	}
	if !countsFirst(o.Cluster) || len(record.Claims) > 0 {
		names = names[:1]
	}
	o.Warm.NotThere, err = r.usedBy(ctx, o.Cluster.Namespace, names)
	return err
}

// countsFirst tells whether what all claims have is counted before the first one is copied.
func countsFirst(c *cachev1alpha1.Memcached) bool {
	return c.Spec.WarmFrom.Volumes != nil && c.Spec.WarmFrom.OnShortage != cachev1alpha1.ShortageProceed
}

// usedBy says which pod uses one of the claims; empty if none does. A volume has one user.
func (r *Reader) usedBy(ctx context.Context, namespace string, claims []string) (string, error) {
	const atOnce = 500
	uses := func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && slices.Contains(claims, v.PersistentVolumeClaim.ClaimName)
	}
	for next := ""; ; {
		var pods corev1.PodList
		if err := r.Live.List(ctx, &pods, client.InNamespace(namespace), client.Limit(atOnce), client.Continue(next)); err != nil {
			return "", fmt.Errorf("list the pods that may use claim %s: %w", strings.Join(claims, ", "), err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if at := slices.IndexFunc(pod.Spec.Volumes, uses); at >= 0 && !read.PodEnded(pod) {
				return fmt.Sprintf("claim %s is used by pod %s", pod.Spec.Volumes[at].PersistentVolumeClaim.ClaimName, pod.Name), nil
			}
		}
		if next = pods.Continue; next == "" {
			return "", nil
		}
	}
}

// planWarm translates the known facts about the source for the plan.
func (o *State) planWarm() *plan.Warm {
	spec := o.Cluster.Spec.WarmFrom
	if o.Warm == nil {
		return nil
	}
	w := &plan.Warm{Holder: claims.Claim{Name: o.Cluster.Name, UID: o.Cluster.UID, Attempts: read.Attempts(o.Cluster.Annotations[cachev1alpha1.AnnotationAttempts])}}
	w.Asked, w.Holder.MoveRequest, w.Repeats = warmAsked(o.Cluster)
	if spec == nil {
		w.Removed = true
		return w
	}
	w.Source, w.Record, w.NotThere = build.WarmSource(o.Cluster), WarmRecord(o.Cluster), o.Warm.NotThere
	w.Volumes, w.HoldsList, w.OnMiss = spec.Volumes != nil, spec.Until == cachev1alpha1.WarmReady, spec.OnMiss && spec.Volumes == nil
	if spec.Patience != nil {
		w.Patience = spec.Patience.Duration
	}
	w.CountsFirst = countsFirst(o.Cluster)
	for i := range o.Warm.Claims {
		c := &o.Warm.Claims[i]
		w.Left = append(w.Left, plan.WarmClaim{ClaimRef: action.ClaimRef{Name: c.Name, UID: c.UID},
			Made: build.WarmMade(o.Cluster, nil, c.UID, false), Counts: build.WarmMade(o.Cluster, nil, c.UID, true)})
	}
	w.Made = build.WarmMade(o.Cluster, o.Warm.From, "", false)
	for i := range o.Warms { // what can't be found now ends no Job that has begun
		if w.NotThere != "" {
			w.Made = ring.WarmMade(identity.DutyOf(&o.Warms[i]).Target)
		}
	}
	if len(o.Warms) > 0 {
		w.Waits = o.DrainerWaits(o.Now)[o.Cluster.UID]
	}
	return w
}
