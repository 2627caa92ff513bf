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
		// before is the annotation, and refused means that nothing is written.
		before  string
		refused bool
	}{
		"nothing to copy":                     {said: cachev1alpha1.WarmAgain, refused: true},
		"again":                               {from: true, phase: cachev1alpha1.WarmDone, said: cachev1alpha1.WarmAgain, want: "again"},
		"again, before the first is answered": {from: true, phase: cachev1alpha1.WarmStarting, said: cachev1alpha1.WarmAgain, before: "again", want: "again", refused: true},
		"skip":                                {from: true, phase: cachev1alpha1.WarmCopying, said: cachev1alpha1.WarmSkip, want: "skip"},
		"retry":                               {from: true, phase: cachev1alpha1.WarmFailed, said: cachev1alpha1.WarmRetry, want: "retry"},
		"skip what has ended":                 {from: true, phase: cachev1alpha1.WarmDone, said: cachev1alpha1.WarmSkip, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "shop"}}
			if test.before != "" {
				m.Annotations = map[string]string{cachev1alpha1.AnnotationWarm: test.before}
			}
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
			if got := now.Annotations[cachev1alpha1.AnnotationWarm]; got != test.want || (err != nil) != test.refused {
				t.Errorf("the Memcached says %q, want %q: %v; %s", got, test.want, err, &out)
			}
		})
	}
}
