package move

import (
	"fmt"
	"testing"
)

func TestAPassHasEachKeyOnceAndTakesFewForOthers(t *testing.T) {
	const keys = 200_000
	var o once
	for pass := range 3 {
		o.Begin(keys)
		wrong := 0
		for i := range keys {
			if o.Had(fmt.Appendf(nil, "key%d", i)) {
				wrong++
			}
		}
		if wrong > keys/1000 {
			t.Errorf("pass %d: %d of %d keys were taken for others", pass, wrong, keys)
		}
		for i := range keys {
			if key := fmt.Appendf(nil, "key%d", i); !o.Had(key) {
				t.Fatalf("pass %d: it has forgotten %s", pass, key)
			}
		}
	}
}
