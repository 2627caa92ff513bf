package status

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
)

// Certificate is a pod's report about the certificate that it serves with.
type Certificate struct {
	Pod string
	// NotAfter is when the certificate expires; zero if that is not known.
	NotAfter time.Time
	// Trouble says why the pod can't use the files of the Secret; empty if it can.
	Trouble string
}

// endsSoon is how long before its end a certificate has to be renewed.
const endsSoon = 7 * 24 * time.Hour

// certificateValid is the condition about the worst certificate of members and routers; nil if all are valid.
// If no pod has been asked, the condition stays as before.
func certificateValid(in *Input, w *waits) *metav1.Condition {
	const kind = cachev1alpha1.ConditionCertificateValid
	if in.Cluster.Spec.TLS == nil {
		return nil
	}
	if t := certificateTrouble(in, w); t != nil {
		return says(kind, false, t.reason, "%s", t.message)
	}
	if !certificatesAsked(in) {
		return certificateBefore(in)
	}
	first := firstToEnd(in)
	switch {
	case first == nil:
		return certificateUnknown()
	case w.past(first.NotAfter.Add(-endsSoon)):
		return says(kind, false, cachev1alpha1.ReasonCertificateEnds, "the certificate of pod %s ends at %s: renew it in its Secret", first.Pod, clock(first.NotAfter))
	}
	return nil
}

func certificateUnknown() *metav1.Condition {
	c := says(cachev1alpha1.ConditionCertificateValid, false, cachev1alpha1.ReasonCertificateUnknown, "no pod has told the operator when its certificate ends")
	c.Status = metav1.ConditionUnknown
	return c
}

// certificatesAsked tells whether pods have been asked. An operator that has just started has asked none.
func certificatesAsked(in *Input) bool { return len(in.Certificates) > 0 || in.CertificatesSilent }

// certificateTrouble: a certificate has expired, or can't be used.
func certificateTrouble(in *Input, w *waits) *trouble {
	if first := firstToEnd(in); first != nil && w.past(first.NotAfter) {
		return troublef(cachev1alpha1.ReasonCertificateExpired, "the certificate of pod %s has expired at %s: renew it in its Secret", first.Pod, clock(first.NotAfter))
	}
	for _, c := range in.Certificates {
		if c.Trouble != "" {
			return troublef(cachev1alpha1.ReasonCertificateInvalid, "pod %s can't use the certificate in its Secret, and goes on with the one that it has: %s",
				c.Pod, claims.Printable(c.Trouble, claims.MaxMessage/2))
		}
	}
	if was := certificateBefore(in); was != nil && (was.Reason == cachev1alpha1.ReasonCertificateExpired || was.Reason == cachev1alpha1.ReasonCertificateInvalid) {
		return troublef(was.Reason, "%s", was.Message)
	}
	return nil
}

// certificateBefore is the condition before, if no pod has been asked since. A hibernated cluster has
// none: no pod uses the certificate, and pods that return read the Secret.
func certificateBefore(in *Input) *metav1.Condition {
	hibernates := *in.Cluster.Spec.Size == 0 && len(in.Pods) == 0 && len(in.RouterPods) == 0
	if in.Cluster.Spec.TLS == nil || certificatesAsked(in) || hibernates {
		return nil
	}
	return meta.FindStatusCondition(in.Cluster.Status.Conditions, cachev1alpha1.ConditionCertificateValid)
}

// firstToEnd is the certificate that expires first; nil if none is known.
func firstToEnd(in *Input) *Certificate {
	var first *Certificate
	for i := range in.Certificates {
		if c := &in.Certificates[i]; !c.NotAfter.IsZero() && (first == nil || c.NotAfter.Before(first.NotAfter)) {
			first = c
		}
	}
	return first
}
