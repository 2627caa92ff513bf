package model

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// failure is how one write of a reconcile fails. The next write succeeds.
type failure uint8

const (
	conflict failure = iota + 1 // another client writes right before
	notFound
	unavailable
	anyFailure
)

func (f failure) String() string {
	return [...]string{conflict: "another client writes first", notFound: "not found", unavailable: "the API server is unavailable"}[f]
}

// fails counts a write that would change something, and tells whether this write has to fail.
func (s *server) fails() bool {
	s.attempts++
	return s.attempts == s.failAt
}

// failWrite fails the write to this object. For a conflict it changes the object first, so that
// only a write with an optimistic lock fails.
func (s *server) failWrite(ctx context.Context, c client.Client, live client.Object) error {
	if !s.fails() {
		return nil
	}
	if s.failure != conflict {
		return s.failure.err(live)
	}
	annotations := maps.Clone(live.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["example.com/written-by"] = "another client"
	live.SetAnnotations(annotations)
	s.touched = true
	return c.Update(ctx, live)
}

// failCreate fails the creation of this object.
func (s *server) failCreate(o client.Object) error {
	switch {
	case !s.fails():
		return nil
	case s.failure == conflict:
		return apierrors.NewAlreadyExists(resource(o), o.GetName())
	}
	return s.failure.err(o)
}

// failApply fails an apply, except of objects that the model doesn't have. Server-side apply has no
// optimistic lock.
func (s *server) failApply(o client.Object) error {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	has := kind == "StatefulSet" || kind == "ConfigMap" && !s.listFollows
	if !has || !s.fails() || s.failure == conflict {
		return nil
	}
	return s.failure.err(o)
}

func resource(o client.Object) schema.GroupResource {
	return schema.GroupResource{Resource: fmt.Sprintf("%T", o)}
}

func (f failure) err(o client.Object) error {
	if f == notFound {
		return apierrors.NewNotFound(resource(o), o.GetName())
	}
	return apierrors.NewServiceUnavailable("try again")
}

// lockLost tells whether the patch has an optimistic lock on an earlier version.
func lockLost(live, o client.Object, p client.Patch) bool {
	data, err := p.Data(o)
	if err != nil {
		panic(err)
	}
	var locked struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &locked); err != nil {
		panic(err)
	}
	return locked.Metadata.ResourceVersion != "" && locked.Metadata.ResourceVersion != live.GetResourceVersion()
}

// restore undoes the last write.
func restore(ctx context.Context, c client.Client, before, after *unstructured.Unstructured) error {
	if before == nil {
		return c.Delete(ctx, after)
	}
	before.SetResourceVersion(after.GetResourceVersion())
	return c.Update(ctx, before)
}

// whenWriteFails is the outcome of a step whose write fails.
func (v verb) whenWriteFails(f failure) outcome {
	onClaim, withoutLock, onlyOnce := false, false, false
	switch v {
	case addClaimFinalizer, markLeaving, countFailure, skipAside, carryOver, noteRestored, recordMoved, clearMoving, recordReceipt, clearRetry, releaseClaim:
		onClaim = true
	case applyMembers, writeList, beginMove:
		withoutLock = true
	case deleteJob, deleteMembers:
		withoutLock, onlyOnce = true, true
	case deleteClaim, setAside, removeOwnerFinalizer:
		onlyOnce = true
	}
	switch {
	case f == conflict && onClaim:
		return done // the claim is read and decided about once more
	case f == conflict && withoutLock:
		return done
	case f == notFound && (onClaim || onlyOnce):
		return nothing
	}
	return refused
}

// taken is a step and its outcome.
type taken struct {
	step
	outcome
}

func (t taken) String() string { return fmt.Sprintf("%s %d (%s)", t.verb, t.ordinal, t.outcome) }

// writes tells whether the step changed something. The status doesn't count, because it is always
// written.
func (t taken) writes() bool { return t.outcome == done && t.verb != noteServers }

// reconcile plans and takes all steps, with no event in between. If failAt is not 0, the write with
// this number fails.
func (m *model) reconcile(s *state, failAt int, f failure) (all []taken) {
	s.todo = m.steps(s)
	for writes := 0; s.todo.n > 0; {
		before := *s
		t := taken{step: s.todo.todo[0]}
		t.outcome = m.do(s, t.step)
		if t.writes() {
			writes++
		}
		if t.writes() && writes == failAt {
			if t.outcome = t.verb.whenWriteFails(f); t.outcome != done {
				*s = before
			}
		}
		s.after(t.step, t.outcome)
		s.sync()
		all = append(all, t)
	}
	return all
}
