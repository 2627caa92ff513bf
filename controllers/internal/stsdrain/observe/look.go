package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// Claims of a StatefulSet have no label of ours when they are made, so the cache doesn't have them, and they
// are looked for live: by their names when a pod, replicas or the templates have changed, and once, in the
// whole namespace, because claims of members that were not wanted before can have any ordinal.

// Looked remembers what was looked for, so that not every reconcile reads live. Its zero value is ready
// to use.
type Looked struct{ kept remembered.ByObject[looked] }

type looked struct {
	owner types.UID
	// namespace: the whole namespace was read for the StatefulSet with this UID.
	namespace types.UID
	// what was looked for by name.
	what string
	// unlabelled are claims that were found without the label: their ordinal may be that of no member, and the write
	// that puts the label there may have failed.
	unlabelled []string
	// foreign are the claims of other owners that were found.
	foreign []foreignClaim
	at      time.Time
}

// foreignClaim is a claim of another owner, with the version that was read.
type foreignClaim struct {
	stsdrain.Foreign
	version string
}

// Forget forgets a StatefulSetDrain that is gone.
func (l *Looked) Forget(key client.ObjectKey) { l.kept.Forget(key) }

// foreignInterval is how often claims of other owners are looked at again.
const foreignInterval = 15 * time.Second

// look sets the claims, Where and Foreign: those of the cache, and those that the cache can't see.
func (r *Reader) look(ctx context.Context, s *State, cached []corev1.PersistentVolumeClaim) error {
	pvcs := slices.DeleteFunc(cached, func(c corev1.PersistentVolumeClaim) bool {
		if !s.Reader.Named(c.Name) {
			return true
		}
		owns := s.Reader.Owns(&c)
		if !owns && isTemplates(s, c.Name) {
			s.Foreign = append(s.Foreign, foreign(&c))
		}
		return !owns
	})
	found, err := r.unseen(ctx, s, cached)
	if err != nil {
		return err
	}
	for _, c := range found.Unlabelled {
		if !slices.ContainsFunc(pvcs, func(p corev1.PersistentVolumeClaim) bool { return p.UID == c.UID }) {
			pvcs = append(pvcs, c)
		}
	}
	// A volume is set aside once, unless the claim that took it over, or one of its unit, is deleted.
	deleted := map[int32]bool{}
	for i := range pvcs {
		c, ok := s.Reader.Claim(&pvcs[i])
		deleted[c.Ordinal] = deleted[c.Ordinal] || ok && c.Aside && c.Deleting
	}
	for i := range pvcs {
		c, ok := s.Reader.Claim(&pvcs[i])
		if !ok {
			continue
		}
		if c.Volume != "" && (c.Deleting || !c.LeavingSince.IsZero() && (!c.Aside || deleted[c.Ordinal])) {
			if c.Where, err = s.Reader.Where(ctx, &pvcs[i], &c); err != nil {
				return err
			}
		}
		s.Claims = append(s.Claims, c)
	}
	return nil
}

// unseen are the claims that the cache can't see. When the StatefulSetDrain goes, or without the StatefulSet, only those
// count that have our finalizer.
func (r *Reader) unseen(ctx context.Context, s *State, cached []corev1.PersistentVolumeClaim) (*read.LiveClaims, error) {
	if s.Set != nil && s.Drain.DeletionTimestamp == nil {
		return r.lookLive(ctx, s, cached)
	}
	found := &read.LiveClaims{}
	protected, err := s.Reader.Protected(ctx)
	if err != nil {
		return nil, err
	}
	return found, s.Reader.LookFor(ctx, found, slices.DeleteFunc(protected, func(name string) bool { return has(cached, name) })...)
}

// lookLive looks for claims that the cache can't see, if there may be other ones than the last time.
// lookLive adds those of other owners to Foreign.
func (r *Reader) lookLive(ctx context.Context, s *State, cached []corev1.PersistentVolumeClaim) (*read.LiveClaims, error) {
	key, found := client.ObjectKeyFromObject(s.Drain), &read.LiveClaims{}
	var last looked
	r.Looked.kept.Use(key, func(l *looked) { last = *l })
	missing, err := missing(ctx, s, cached, last.unlabelled)
	if err != nil {
		return nil, err
	}
	what, err := r.whatToLookFor(ctx, s, missing)
	if err != nil {
		return nil, err
	}
	now := looked{owner: s.Drain.UID, namespace: s.Set.UID, what: what, at: s.Now}
	switch {
	case last.owner != now.owner || last.namespace != now.namespace:
		if found, err = s.Reader.Everywhere(ctx, cached); err != nil {
			return nil, err
		}
	case last.what != now.what || len(last.foreign) > 0 && !s.Now.Before(last.at.Add(foreignInterval)):
		var unread []string
		if now.foreign, unread, err = r.unchanged(ctx, s, last.foreign, missing); err != nil {
			return nil, err
		}
		if err := s.Reader.LookFor(ctx, found, unread...); err != nil {
			return nil, err
		}
	default:
		s.remember(last.foreign)
		return found, nil
	}
	for i := range found.Others {
		if c := &found.Others[i]; isTemplates(s, c.Name) {
			now.foreign = append(now.foreign, foreignClaim{foreign(c), read.VersionOf(c)})
		}
	}
	slices.SortFunc(now.foreign, func(a, b foreignClaim) int { return strings.Compare(a.Name, b.Name) })
	for i := range found.Unlabelled {
		now.unlabelled, now.what = append(now.unlabelled, found.Unlabelled[i].Name), "" // until they have the label
	}
	if len(s.Others) == 0 { // else they may be another's
		s.Reader.Remember(found.Unlabelled) // one that is deleted gets no label any more
	}
	r.Looked.kept.Use(key, func(l *looked) { *l = now })
	s.remember(now.foreign)
	return found, nil
}

// unchanged returns the claims of other owners that have not changed since they were read (same), by the
// watch of their metadata, and the other missing claims (unread).
func (r *Reader) unchanged(ctx context.Context, s *State, before []foreignClaim, missing []string) (same []foreignClaim, unread []string, err error) {
	unread = slices.Clone(missing)
	for _, f := range before {
		at := slices.Index(unread, f.Name)
		if at < 0 {
			continue
		}
		version, err := r.Unlabelled.Version(ctx, client.ObjectKey{Namespace: s.Drain.Namespace, Name: f.Name})
		if err != nil {
			return nil, nil, err
		}
		if version != "" && version == f.version {
			same, unread = append(same, f), slices.Delete(unread, at, at+1)
		}
	}
	return same, unread, nil
}

// remember adds claims of other owners, which are looked at again after a time.
func (s *State) remember(others []foreignClaim) {
	for i := range others {
		s.Foreign = append(s.Foreign, others[i].Foreign)
	}
	if len(others) > 0 {
		s.AtMost(foreignInterval)
	}
}

// missing are the names of claims that the cache does not have: those that members use that are wanted, or have a
// pod, those that lacked the label before, and those that have our finalizer, and have lost the label.
func missing(ctx context.Context, s *State, cached []corev1.PersistentVolumeClaim, before []string) (all []string, err error) {
	add := func(ordinal int32) {
		for i := range s.Set.Spec.VolumeClaimTemplates {
			name := stsdrain.ClaimNameOf(s.Set.Name, s.Set.Spec.VolumeClaimTemplates[i].Name, ordinal)
			if !slices.Contains(all, name) && !has(cached, name) {
				all = append(all, name)
			}
		}
	}
	of := set(s.Drain, s.Set)
	for n := range of.Replicas {
		add(of.Start + n)
	}
	exist, _ := Ordinals(s.Set.Name, s.Set, s.Members)
	for _, ordinal := range exist {
		add(ordinal)
	}
	protected, err := s.Reader.Protected(ctx)
	for _, name := range slices.Concat(before, protected) {
		if !slices.Contains(all, name) && !has(cached, name) {
			all = append(all, name)
		}
	}
	return all, err
}

func has(cached []corev1.PersistentVolumeClaim, name string) bool {
	return slices.ContainsFunc(cached, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name })
}

// whatToLookFor changes when there may be other claims. The StatefulSet's controller creates the claim of a
// pod that waits for a node again, so the watch of all claims' metadata is asked, too.
func (r *Reader) whatToLookFor(ctx context.Context, s *State, missing []string) (string, error) {
	of := set(s.Drain, s.Set)
	b := &strings.Builder{}
	fmt.Fprint(b, of.UID, of.Start, of.Replicas, of.Templates)
	for _, name := range missing {
		version, err := r.Unlabelled.Version(ctx, client.ObjectKey{Namespace: s.Drain.Namespace, Name: name})
		if err != nil {
			return "", err
		}
		uid, _, _ := strings.Cut(version, " ")
		fmt.Fprint(b, " ", name, uid)
	}
	for _, pod := range s.Members {
		fmt.Fprint(b, " ", pod.UID)
	}
	return b.String(), nil
}

// isTemplates tells whether the name is that of a claim of one of the StatefulSet's templates.
func isTemplates(s *State, claim string) bool {
	is, ok := stsdrain.ParseClaimName(s.Drain.Spec.StatefulSetName, claim)
	return ok && !is.Aside && s.Set != nil && hasTemplate(s.Set, is.Template)
}

func foreign(c *corev1.PersistentVolumeClaim) stsdrain.Foreign {
	by := ""
	if ref := metav1.GetControllerOfNoCopy(c); ref != nil {
		by = ref.Kind + " " + ref.Name
	}
	return stsdrain.Foreign{Name: c.Name, By: by}
}
