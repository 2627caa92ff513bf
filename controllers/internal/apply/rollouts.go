package apply

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/rollout"
)

// templateInput is the input of the decision about the template of a StatefulSet or a Deployment.
type templateInput struct {
	// turns are those of members or of routers; spec is a hash of the part of the spec that the
	// template depends on.
	turns  *rollout.Turns
	spec   string
	object metav1.Object
	// live is the present template, applied the part that we have applied, and desired the next
	// template.
	live    *corev1.PodTemplateSpec
	applied func() (*coreac.PodTemplateSpecApplyConfiguration, error)
	desired *coreac.PodTemplateSpecApplyConfiguration
	// replicas is the present size, wanted the next one.
	replicas, wanted int32
	// ready: all members exist, have this template, and are ready.
	ready bool
	// otherSize: the next size is not yet the spec's.
	otherSize bool
	// kept: the plan keeps the present template.
	kept bool
}

// templateDecision is the template to apply, and the decision about its turn.
type templateDecision struct {
	template *coreac.PodTemplateSpecApplyConfiguration
	// settled: the template is as wanted, and no roll-out is under way.
	settled bool
	// changes: the template differs from the one that is applied now.
	changes bool
	turn    *rollout.Decision
}

// firstTemplate is the decision for members that don't exist yet.
func firstTemplate(c *cachev1alpha1.Memcached, spec string, template *coreac.PodTemplateSpecApplyConfiguration) *templateDecision {
	return &templateDecision{settled: true, turn: &rollout.Decision{Record: rollout.Record{
		Generation: c.Generation, Spec: spec, Sent: hashOf(template),
	}}}
}

func (d *templateDecision) annotations() map[string]string {
	return map[string]string{cachev1alpha1.AnnotationTemplate: d.turn.Record.String()}
}

// decideTemplate decides whether the pods get the wanted template now, or later in their turn.
func (r *run) decideTemplate(ctx context.Context, m *templateInput) (*templateDecision, error) {
	sent, recorded := hashOf(m.desired), rollout.Parse(m.object.GetAnnotations()[cachev1alpha1.AnnotationTemplate])
	same := recorded != nil && recorded.Sent == sent && ownsAll(m.object, m.desired, "spec", "template")
	if !same {
		applied, err := m.applied()
		if err != nil {
			return nil, err
		}
		same = equality.Semantic.DeepEqual(m.desired, applied)
	}
	turn, err := m.turns.Decide(ctx, client.ObjectKeyFromObject(r.cluster), &rollout.Members{
		Differs:    !m.kept && !same,
		Recorded:   recorded,
		Generation: r.cluster.Generation, Spec: m.spec,
		None: m.replicas == 0 || m.wanted == 0, Ready: m.ready,
		Kept: m.kept, OtherSize: m.otherSize,
	})
	if err != nil {
		return nil, err
	}
	if turn.Why != "" {
		r.done.RollOutWaits = turn.Why
	}
	r.done.Waits.AtMost(turn.DueIn)
	d := &templateDecision{template: m.desired, settled: turn.Settled, changes: !m.kept && !same && !turn.Keep, turn: turn}
	turn.Record.Sent = sent
	if turn.Keep {
		turn.Record.Sent = ptr.Deref(recorded, rollout.Record{}).Sent
		d.template, err = m.present()
	}
	return d, err
}

// present is the present template: the part that we have applied, or all of it if that part is not
// known.
func (m *templateInput) present() (*coreac.PodTemplateSpecApplyConfiguration, error) {
	applied, err := m.applied()
	if err != nil {
		return nil, err
	}
	if applied != nil {
		of := lastApplied[struct {
			Spec struct {
				Template *coreac.PodTemplateSpecApplyConfiguration `json:"template"`
			} `json:"spec"`
		}](m.object)
		if of != nil && of.Spec.Template != nil {
			return of.Spec.Template, nil
		}
		return applied, nil
	}
	b, err := json.Marshal(m.live)
	if err != nil {
		return nil, err
	}
	template := &coreac.PodTemplateSpecApplyConfiguration{}
	return template, json.Unmarshal(b, template)
}

// noteTemplateWrite tells the turns how the write of the template ended.
func (r *run) noteTemplateWrite(turns *rollout.Turns, d *templateDecision, err error) {
	key := client.ObjectKeyFromObject(r.cluster)
	switch {
	case err == nil:
		turns.Applied(key, d.turn)
	case notApplied(err):
		turns.Refused(key, d.turn)
	}
}

// notApplied tells whether the error proves that the API server changed nothing.
func notApplied(err error) bool {
	var answer apierrors.APIStatus
	return errors.Is(err, read.ErrRefused) || errors.Is(err, errStale) || errors.As(err, &answer) &&
		answer.Status().Code >= http.StatusBadRequest && answer.Status().Code < http.StatusInternalServerError
}

// statefulSetReady: all members exist, have the present template, and are ready.
func statefulSetReady(s *appsv1.StatefulSet) bool {
	n := ptr.Deref(s.Spec.Replicas, 1)
	return s.Status.ObservedGeneration == s.Generation && s.Status.UpdateRevision == s.Status.CurrentRevision &&
		s.Status.Replicas == n && s.Status.ReadyReplicas == n && s.Status.UpdatedReplicas == n
}

// deploymentReady is statefulSetReady for a Deployment.
func deploymentReady(d *appsv1.Deployment) bool {
	n := ptr.Deref(d.Spec.Replicas, 1)
	return d.Status.ObservedGeneration == d.Generation &&
		d.Status.Replicas == n && d.Status.ReadyReplicas == n && d.Status.UpdatedReplicas == n
}
