package resp

import (
	"fmt"
	"testing"
)

// Otherwise a drain of one server would leave keys of the others where no client looks.
func TestOnlyTheKeysOfAServerThatLeavesGetAnother(t *testing.T) {
	const keys = 10000
	for servers := 5; servers > 1; servers-- {
		each := make([]int, servers)
		for i := range keys {
			key := fmt.Sprint("key-", i)
			before, after := Owner(key, servers), Owner(key, servers-1)
			each[before]++
			if before != after && before != servers-1 {
				t.Errorf("%s goes from server %d, which stays, to %d", key, before, after)
			}
		}
		for s, n := range each {
			if fair := keys / servers; n < fair*9/10 || n > fair*11/10 {
				t.Errorf("server %d of %d has %d keys, want about %d", s, servers, n, fair)
			}
		}
	}
}
