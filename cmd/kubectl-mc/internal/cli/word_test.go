package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/controllers"
)

// A word about the drain of a member that stays would wait on its claim, and give the data up when the member leaves one day,
// without a question.
func TestNoWordWaitsForAMemberToLeave(t *testing.T) {
	cache := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "shop"}}
	queue := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Name: "queue", Namespace: "shop"}}
	queue.Status.LeftOver = []string{"left-over"}
	queue.Status.Drains = []cachev1alpha1.MemberDrain{{Claims: []string{"departed"}}}
	for name, test := range map[string]struct {
		owner       client.Object
		claim, said string
		leaves      bool
		// skip and retry are the word on the claim after these.
		skip, retry string
	}{
		"a StatefulSet's member that stays":       {owner: queue, claim: "stays"},
		"a StatefulSet's member that stays, held": {owner: queue, claim: "stays", said: "hold", skip: "hold"},
		"a StatefulSet's member that has left":    {owner: queue, claim: "departed", skip: "skip", retry: "retry"},
		"a StatefulSet's left-over claim":         {owner: queue, claim: "left-over", skip: "skip", retry: "retry"},
		"a StatefulSet's member that leaves":      {owner: queue, claim: "leaves", leaves: true, said: "hold", skip: "skip", retry: "retry"},
		"a member that stays":                     {owner: cache, claim: "stays"},
		"a member that stays, held":               {owner: cache, claim: "stays", said: "hold", skip: "hold"},
		"a member that stays, skipped before":     {owner: cache, claim: "stays", said: "skip", skip: "skip"},
		"a member that leaves":                    {owner: cache, claim: "leaves", leaves: true, said: "hold", skip: "skip", retry: "retry"},
		"a claim without an owner":                {claim: "stays"},
	} {
		for verb, want := range map[string]string{"skip": test.skip, "retry": test.retry} {
			t.Run(name+": "+verb, func(t *testing.T) {
				claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: test.claim, Namespace: "shop", Annotations: map[string]string{}}}
				if test.said != "" {
					claim.Annotations[cachev1alpha1.AnnotationDrain] = test.said
				}
				if test.leaves {
					claim.Annotations[cachev1alpha1.AnnotationLeaving] = "2030-01-02T03:04:05Z"
				}
				s := &kube.Session{Namespace: "shop", Client: fake.NewClientBuilder().WithScheme(controllers.NewScheme()).WithObjects(claim).Build()}
				var out, asked bytes.Buffer
				c := &command{io: genericiooptions.IOStreams{In: strings.NewReader("yes\n"), Out: &out, ErrOut: &asked}}
				w := &word{command: c, Session: s, owner: test.owner}
				var err error
				if w.holder, err = s.Claim(t.Context(), test.claim); err != nil {
					t.Fatal(err)
				}
				err = map[string]func(context.Context, *word) error{"skip": skip, "retry": retry}[verb](t.Context(), w)
				if claim, _ = s.Claim(t.Context(), test.claim); claim.Annotations[cachev1alpha1.AnnotationDrain] != want {
					t.Errorf("the claim says %v, want %q: %v; %s%s", claim.Annotations, want, err, &asked, &out)
				}
				if changed := want != test.said; changed != (err == nil) {
					t.Errorf("it changed the word: %t: %v", changed, err)
				}
				if err != nil && asked.Len() > 0 {
					t.Errorf("it asked in vain: %s", &asked)
				}
			})
		}
	}
}
