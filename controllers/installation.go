package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/installation"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// installed is this installation of the operator, for one kind of objects.
type installed struct {
	client.Client
	Clock  clock.PassiveClock
	Events events.EventRecorder
	// name of this installation; empty if it ignores the others.
	name  string
	known *remembered.Installations
}

// manages tells whether this installation manages the object, and after what time to look again; 0 if an
// event will come. manages writes the question or answer for another installation. With claimed, this
// installation's name need not be written now.
func (i *installed) manages(ctx context.Context, object client.Object, claimed bool) (bool, time.Duration, error) {
	if i.name == "" || object.GetUID() == "" {
		return true, 0, nil
	}
	seen := i.seen(object)
	step, wait := installation.Next(i.name, seen)
	if step == installation.Claim && claimed {
		return true, 0, nil
	}
	before := object.DeepCopyObject().(client.Object)
	if !installation.Write(i.name, step, object) {
		return step.Manages(), wait, nil
	}
	ctx = write.Because(ctx, step.Because(seen))
	err := i.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(cachev1alpha1.ManagedBy))
	if err != nil {
		object.SetAnnotations(before.GetAnnotations())
		if denied := read.Denied(err); denied {
			i.Events.Eventf(object, nil, corev1.EventTypeWarning, cachev1alpha1.ReasonReconcileError, "Reconcile", "%s",
				claims.BoundMessage(fmt.Sprintf("the annotation that names its installation of the operator can't be written: %s", err)))
			switch seen.Operator {
			case i.name:
				return true, installation.AnswerTime, nil // only the other installation gets no answer
			case "":
			default:
				err = &questionDeniedError{by: seen.Operator, err: err}
			}
		}
		return false, retryAfter(0), client.IgnoreNotFound(err)
	}
	step, wait = installation.Next(i.name, i.seen(object))
	return step.Manages(), wait, nil
}

// seen returns the object's words about its installations of the operator, and how long they have not
// changed.
func (i *installed) seen(object client.Object) installation.Seen {
	return installation.See(object, i.known.UnchangedFor(object, i.Clock.Now()))
}

// other is another installation that would manage the object if this one didn't; empty if none is known.
func (i *installed) other(object client.Object) string {
	seen := installation.See(object, 0)
	if seen.Question == nil || seen.Question.By == i.name || seen.Operator != i.name {
		return ""
	}
	return seen.Question.By
}

// questionDenied begins the message about an object whose installation can't be asked whether it is at work.
const questionDenied = "another installation of the operator, "

// questionDeniedError says that the API server denies this installation to ask another one, or to take over from it.
type questionDeniedError struct {
	by  string
	err error
}

func (e *questionDeniedError) Error() string {
	return fmt.Sprintf("%s%s, manages this object, and can't be asked whether it is at work: %s", questionDenied, e.by, e.err)
}

func (e *questionDeniedError) Unwrap() error { return e.err }

// tells tells whether status is to say why this installation does not manage the object: the API server
// denies the write of its name, so that no installation manages the object, or the question to the
// installation that does.
func (i *installed) tells(object client.Object, conditions []metav1.Condition, err error) bool {
	cannotAsk := (*questionDeniedError)(nil)
	if errors.As(err, &cannotAsk) {
		return i.known.Tells(object, saysQuestionDenied(conditions), i.Clock.Now())
	}
	return read.Denied(err) && installation.See(object, 0).Operator == ""
}

func saysQuestionDenied(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, cachev1alpha1.ConditionDegraded)
	return c != nil && strings.HasPrefix(c.Message, questionDenied)
}

// askedInStatus passes the update in which another installation says in status that it can't ask. The
// installation that manages the object replaces that status.
var askedInStatus = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return saysQuestionDenied(conditionsOf(e.ObjectNew)) && !saysQuestionDenied(conditionsOf(e.ObjectOld))
	},
}

func conditionsOf(object client.Object) []metav1.Condition {
	switch o := object.(type) {
	case *cachev1alpha1.Memcached:
		return o.Status.Conditions
	case *cachev1alpha1.StatefulSetDrain:
		return o.Status.Conditions
	}
	return nil
}

// leftAlone ends the reconcile of an object that another installation manages or may manage.
func leftAlone(look time.Duration, err error) (ctrl.Result, error) {
	if err != nil && !passes(err) {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: look}, nil
}

func (r *MemcachedReconciler) installed() *installed {
	return &installed{Client: r.Client, Clock: r.Clock, Events: r.Events, name: r.Installation, known: &r.installations}
}

// manages tells whether this installation manages the Memcached.
func (r *MemcachedReconciler) manages(ctx context.Context, cluster *cachev1alpha1.Memcached) (bool, time.Duration, error) {
	return r.installed().manages(ctx, cluster, observe.Paused(cluster) || cluster.DeletionTimestamp != nil || managesWithFinalizer(cluster))
}

// managesWithFinalizer tells whether the cluster is about to get its finalizer. That write also has
// the name of the installation, and comes before all others.
func managesWithFinalizer(cluster *cachev1alpha1.Memcached) bool {
	return cluster.Spec.HasVolumes() && !controllerutil.ContainsFinalizer(cluster, cachev1alpha1.OwnerFinalizer)
}

// leaveAlone ends the reconcile of a cluster that another installation manages or may manage.
func (r *MemcachedReconciler) leaveAlone(key client.ObjectKey, look time.Duration, err error) (ctrl.Result, error) {
	r.progress.Forget(key)
	r.room.Forget(key)
	r.rings.Forget(key)
	r.certificates.Forget(key)
	r.steps.Forget(key)
	r.turns().StandAside(key)
	r.routerTurns().StandAside(key)
	return leftAlone(look, err)
}

func (r *StatefulSetDrainReconciler) installed() *installed {
	return &installed{Client: r.Client, Clock: r.Clock, Events: r.Events, name: r.Installation, known: &r.installations}
}
