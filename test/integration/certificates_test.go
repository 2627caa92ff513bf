package integration

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
)

// The operator may not read the Secret, and asks the pods.
func TestACertificateThatEndsOrCannotBeUsedIsSaidInStatus(t *testing.T) {
	for what, test := range map[string]struct {
		answer           controllers.Certificate
		degraded, reason string
	}{
		"it has expired":        {controllers.Certificate{NotAfter: time.Now().Add(-time.Hour).Unix()}, "True", cachev1alpha1.ReasonCertificateExpired},
		"its key doesn't match": {controllers.Certificate{Trouble: "tls.crt and tls.key: private key does not match"}, "True", cachev1alpha1.ReasonCertificateInvalid},
		"it ends within a week": {controllers.Certificate{NotAfter: time.Now().Add(5 * 24 * time.Hour).Unix()}, "False", cachev1alpha1.ReasonCertificateEnds},
	} {
		t.Run(what, func(t *testing.T) {
			w := newNamespace(t)
			var asked atomic.Int32
			w.certificates = func(_ context.Context, address string) (controllers.Certificate, error) {
				if asked.Add(1); !strings.HasSuffix(address, ":11213") {
					t.Errorf("asks %s", address)
				}
				return test.answer, nil
			}
			w.startOperator()
			w.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").With(func(s *cachev1alpha1.MemcachedSpec) {
				s.TLS = &cachev1alpha1.TLSSpec{SecretName: "cache-tls"}
			}).Obj())
			w.condition(cachev1alpha1.ConditionCertificateValid, "False", test.reason)
			if test.degraded == "True" {
				w.condition(cachev1alpha1.ConditionDegraded, "True", test.reason)
				w.condition(cachev1alpha1.ConditionReady, "False", test.reason)
			} else {
				w.settled(2)
			}
			if asked.Load() == 0 {
				t.Error("no pod was asked")
			}
			w.quiet()
		})
	}
}
