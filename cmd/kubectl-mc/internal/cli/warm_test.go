package cli

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/tier"
)

func TestAWordAboutAWarmingIsOnItsMemcached(t *testing.T) {
	tier.Second(t, "TestNoWordWaitsForAMemberToLeave")
	for name, test := range map[string]struct {
		from       bool
		phase      cachev1alpha1.WarmPhase
		said, want string
	}{
		"nothing to copy":     {false, "", cachev1alpha1.WarmAgain, ""},
		"again":               {true, cachev1alpha1.WarmDone, cachev1alpha1.WarmAgain, "again"},
		"skip":                {true, cachev1alpha1.WarmCopying, cachev1alpha1.WarmSkip, "skip"},
		"retry":               {true, cachev1alpha1.WarmFailed, cachev1alpha1.WarmRetry, "retry"},
		"skip what has ended": {true, cachev1alpha1.WarmDone, cachev1alpha1.WarmSkip, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "shop"}}
			if test.from {
				m.Spec.WarmFrom, m.Status.Warm = &cachev1alpha1.WarmSource{Memcached: "old"}, &cachev1alpha1.WarmStatus{Phase: test.phase}
			}
			s := &kube.Session{Namespace: "shop", Client: fake.NewClientBuilder().WithScheme(controllers.NewScheme()).WithObjects(m).Build()}
			var out bytes.Buffer
			w := &word{command: &command{io: genericiooptions.IOStreams{In: strings.NewReader("yes\n"), Out: &out, ErrOut: &out}}, Session: s, holder: m, owner: m}
			var err error
			switch test.said {
			case cachev1alpha1.WarmSkip:
				err = skip(t.Context(), w)
			case cachev1alpha1.WarmRetry:
				err = retry(t.Context(), w)
			default:
				err = w.sayWarm(t.Context(), m, test.said, "is filled")
			}
			now, _ := s.Memcached(t.Context(), "cache")
			if got := now.Annotations[cachev1alpha1.AnnotationWarm]; got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("the Memcached says %q, want %q: %v; %s", got, test.want, err, &out)
			}
		})
	}
}
