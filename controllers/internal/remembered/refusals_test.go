package remembered

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestARefusalHoldsThoughItTakesTurnsOrSaysSomethingElseEachTime(t *testing.T) {
	began := time.Unix(1000, 0)
	for name, why := range map[string]func(i int) string{
		"two take turns":       func(i int) string { return fmt.Sprint(i % 2) },
		"another each time":    func(i int) string { return fmt.Sprint(i) },
		"the very same":        func(int) string { return "same" },
		"the ninth is the 1st": func(i int) string { return fmt.Sprint(i % 9) },
	} {
		var r Refusals
		key := client.ObjectKey{Name: "cache"}
		var since time.Time
		for i := range 100 {
			since = r.Note(key, why(i), began.Add(time.Duration(i)*time.Second))
		}
		if held := began.Add(99 * time.Second).Sub(since); held < time.Minute {
			t.Errorf("%s: after 99 s it has held for %s", name, held)
		}
	}
	var r Refusals
	key := client.ObjectKey{Name: "cache"}
	r.Note(key, "first", began)
	if since := r.Note(key, "second", began.Add(time.Hour)); !since.Equal(began.Add(time.Hour)) {
		t.Errorf("one that is new holds since %s", since)
	}
}
