package remembered

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAMemberIsMissingSinceItWasFirstMissed, and anew after it was there.
func TestAMemberIsMissingSinceItWasFirstMissed(t *testing.T) {
	key, other := client.ObjectKey{Name: "cache"}, client.ObjectKey{Name: "other"}
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	var m Missing[int32]
	for _, step := range []struct {
		missing []int32
		now     int64
		want    map[int32]time.Time
	}{
		{[]int32{2}, 10, map[int32]time.Time{2: at(10)}},
		{[]int32{1, 2}, 20, map[int32]time.Time{1: at(20), 2: at(10)}},
		{[]int32{1}, 30, map[int32]time.Time{1: at(20)}},
		{[]int32{1, 2}, 40, map[int32]time.Time{1: at(20), 2: at(40)}},
		{nil, 50, nil},
		{[]int32{1}, 60, map[int32]time.Time{1: at(60)}},
	} {
		if diff := cmp.Diff(step.want, m.Note(key, step.missing, at(step.now))); diff != "" {
			t.Errorf("at %d: -want +got:\n%s", step.now, diff)
		}
	}
	if since := m.Since(key, 1, at(70)); !since.Equal(at(60)) {
		t.Errorf("a live read: since %s", since)
	}
	if since := m.Since(key, 0, at(70)); !since.Equal(at(70)) {
		t.Errorf("a live read that sees more: since %s", since)
	}
	if since := m.Since(other, 1, at(70)); !since.Equal(at(70)) {
		t.Errorf("another cluster's: since %s", since)
	}
}
