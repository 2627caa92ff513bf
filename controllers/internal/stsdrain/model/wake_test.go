package model

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The StatefulSet's controller is woken once each time that a wanted member lacks its claim: also if it lacked it before.
func TestTheControllerIsWokenOnceForEachAbsence(t *testing.T) {
	m := &model{Options: Options{templates: []string{"data"}}}
	s := m.first()
	wakes := func(want int) {
		t.Helper()
		woken := 0
		for range 2 {
			r := m.reconcile(s, fault{at: -1}, func(before, after *state) { m.check(before, after) })
			if r.err != nil {
				t.Fatal(r.err)
			}
			woken += strings.Count(strings.Join(r.steps, ","), "wake")
			s = r.to
		}
		if woken != want {
			t.Errorf("woken %d times, want %d", woken, want)
		}
	}
	for range 2 {
		s.drop(s.member(1))
		s.drop(s.claim("data-queue-1"))
		wakes(1)
		m.makeMember(s, 1)
		s.start(s.member(1))
		if s.member(1).Status.Phase != corev1.PodRunning {
			t.Fatal("the member does not run")
		}
		wakes(0)
	}
}
