package status

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
)

func certified(all ...Certificate) *Input {
	in := input(2)
	in.Cluster.Spec.TLS = &cachev1alpha1.TLSSpec{SecretName: "tls"}
	in.Certificates = all
	return in
}

func TestStatusSaysHowTheCertificateStands(t *testing.T) {
	const day = 24 * time.Hour
	ends := func(pod string, in time.Duration) Certificate { return Certificate{Pod: pod, NotAfter: now.Add(in)} }
	for what, test := range map[string]struct {
		in               *Input
		status           metav1.ConditionStatus
		reason, degraded string
		says             string
		dueIn            time.Duration
	}{
		"it is valid":                {certified(ends("cache-0", 30*day), ends("cache-1", 60*day)), "", "", "Healthy", "", 23 * day},
		"it ends within a week":      {certified(ends("cache-0", 30*day), ends("cache-1", 6*day)), "False", "CertificateEnds", "Healthy", "pod cache-1", 6 * day},
		"it has expired":             {certified(ends("cache-0", 30*day), ends("cache-1", 0)), "False", "CertificateExpired", "CertificateExpired", "pod cache-1", 0},
		"its key doesn't match":      {certified(ends("cache-0", 30*day), Certificate{Pod: "cache-1", Trouble: "a key\nthat"}), "False", "CertificateInvalid", "CertificateInvalid", "pod cache-1 can't use the certificate in its Secret, and goes on with the one that it has: a key that", 0},
		"no pod was asked yet":       {certified(), "", "", "Healthy", "", 0},
		"no pod answers":             {certified().with(func(in *Input) { in.CertificatesSilent = true }), "Unknown", "CertificateUnknown", "Healthy", "no pod has told", 0},
		"the words of a pod are cut": {certified(Certificate{Pod: "cache-1", Trouble: strings.Repeat("x", 1<<20)}), "False", "CertificateInvalid", "CertificateInvalid", "xxx", 0},
	} {
		t.Run(what, func(t *testing.T) {
			s := Compute(test.in)
			c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionCertificateValid)
			if reasonOf(c) != test.reason || c != nil && c.Status != test.status || !strings.Contains(messageOf(c), test.says) || len(messageOf(c)) > claims.MaxMessage {
				t.Errorf("got %+v", c)
			}
			if d := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionDegraded); d.Reason != test.degraded {
				t.Errorf("Degraded: %s: %s", d.Reason, d.Message)
			}
			if test.dueIn != 0 && test.in.DueIn() != test.dueIn {
				t.Errorf("again after %s, want %s", test.in.DueIn(), test.dueIn)
			}
		})
	}
}

// An operator that has just started has asked no pod yet.
func TestAnExpiredCertificateStaysSaidUntilPodsAreAsked(t *testing.T) {
	in := certified(Certificate{Pod: "cache-0", NotAfter: now.Add(-time.Hour)})
	in.Cluster.Status = Compute(in)
	in.Certificates = nil
	if s := Compute(in); !meta.IsStatusConditionTrue(s.Conditions, cachev1alpha1.ConditionDegraded) {
		t.Errorf("conditions %+v", s.Conditions)
	}
	in.CertificatesSilent = true
	if c := meta.FindStatusCondition(Compute(in).Conditions, cachev1alpha1.ConditionCertificateValid); c.Status != metav1.ConditionUnknown {
		t.Errorf("got %+v", c)
	}
}

func TestWithoutTLSThereIsNoConditionOfACertificate(t *testing.T) {
	in := certified()
	in.Cluster.Spec.TLS = nil
	if c := meta.FindStatusCondition(Compute(in).Conditions, cachev1alpha1.ConditionCertificateValid); c != nil {
		t.Errorf("got %+v", c)
	}
}

// A person may renew the certificate while no pod runs that could tell.
func TestACertificateThatNoPodHasAnyMoreIsForgotten(t *testing.T) {
	in := certified(Certificate{Pod: "cache-0", NotAfter: now.Add(-time.Hour)})
	in.Cluster.Status = Compute(in)
	in.Certificates, in.Plan.Replicas, *in.Cluster.Spec.Size = nil, 0, 0
	said := func() bool {
		s := Compute(in)
		return meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionCertificateValid) != nil && meta.IsStatusConditionTrue(s.Conditions, cachev1alpha1.ConditionDegraded)
	}
	if !said() {
		t.Error("members are still ending, and it is forgotten")
	}
	pods := in.Pods
	in.Pods, in.RouterPods = nil, pods[:1]
	if !said() {
		t.Error("routers have the certificate, too, and it is forgotten")
	}
	in.RouterPods = nil
	if said() {
		t.Error("no pod has it, and it is still said")
	}
}
