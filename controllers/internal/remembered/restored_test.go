package remembered

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// After a restore of etcd the versions of all objects are smaller than that of our last write, and
// may stay smaller for days. The written object no longer exists then.
func TestOurLastWriteGivesWayToWhatIsThere(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(version string, change func(*cachev1alpha1.Memcached)) *cachev1alpha1.Memcached {
		c := atVersion(version)
		c.UID, c.Generation = "first", 3
		change(c)
		return c
	}
	none := func(*cachev1alpha1.Memcached) {}
	for what, test := range map[string]struct {
		cached *cachev1alpha1.Memcached
		after  time.Duration
		want   string
	}{
		"the cache is stale":              {at("7", none), time.Second, "1000"},
		"it has been behind for too long": {at("7", none), time.Minute, "7"},
		"an older spec came back":         {at("7", func(c *cachev1alpha1.Memcached) { c.Generation = 2 }), time.Second, "7"},
		"another spec":                    {at("7", func(c *cachev1alpha1.Memcached) { c.Generation = 4 }), time.Second, "7"},
		"it is being deleted":             {at("7", func(c *cachev1alpha1.Memcached) { c.DeletionTimestamp = &metav1.Time{Time: began} }), time.Second, "7"},
		"another Memcached of the name":   {at("7", func(c *cachev1alpha1.Memcached) { c.UID = types.UID("second") }), time.Second, "7"},
	} {
		var w Written
		w.Note(at("1000", none), 3, began)
		if got := w.Newest(test.cached, began.Add(test.after)).ResourceVersion; got != test.want {
			t.Errorf("%s: got version %s, want %s", what, got, test.want)
		}
		if got := w.Newest(test.cached, began.Add(test.after)).ResourceVersion; got != test.want {
			t.Errorf("%s: then version %s, want %s", what, got, test.want)
		}
	}
}

// Our own write of a size that was left out makes a new generation of the spec. The cache has the
// generation before for a moment.
func TestOurOwnWriteOfTheSpecIsNotTakenForAnothers(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(version string, generation int64) *cachev1alpha1.Memcached {
		c := atVersion(version)
		c.UID, c.Generation = "first", generation
		return c
	}
	for what, test := range map[string]struct {
		writes [][2]int64 // from a generation to one
		cached *cachev1alpha1.Memcached
		want   string
	}{
		"the size":                          {[][2]int64{{3, 4}}, at("7", 3), "1000"},
		"the size, and then the status":     {[][2]int64{{3, 4}, {4, 4}}, at("7", 3), "1001"},
		"a person's write since then":       {[][2]int64{{3, 4}, {4, 4}}, at("7", 5), "7"},
		"an older one was restored":         {[][2]int64{{3, 4}, {4, 4}}, at("7", 2), "7"},
		"the status, and an older restored": {[][2]int64{{4, 4}}, at("7", 3), "7"},
	} {
		var w Written
		for i, write := range test.writes {
			w.Note(at([]string{"1000", "1001"}[i], write[1]), write[0], began)
		}
		if got := w.Newest(test.cached, began.Add(time.Second)).ResourceVersion; got != test.want {
			t.Errorf("%s: got version %s, want %s", what, got, test.want)
		}
	}
}

// Each new router's pod has a new name, so entries of pods that are gone would accumulate.
func TestMatchesOfWhatIsGoneAreDropped(t *testing.T) {
	var m Matches
	c := atVersion("1")
	object := metav1.ObjectMeta{UID: "o", ResourceVersion: "7"}
	for _, kind := range []string{"told a", "told b", "Service"} {
		m.Note(c, kind, &object, 1)
	}
	m.Drop(c, func(kind string) bool { return kind == "told a" })
	for kind, want := range map[string]bool{"told a": false, "told b": true, "Service": true} {
		if got := m.Has(c, kind, &object, 1); got != want {
			t.Errorf("%s is remembered: %v", kind, got)
		}
	}
}
