package volume

import (
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// A version far ahead would block all later lists, also after the next start.
func TestAListFromTheFarFutureIsNotRead(t *testing.T) {
	dir := t.TempDir()
	for version, is := range map[int64]bool{
		1: true,
		contract.NumberAt(time.Now().Add(23 * time.Hour)): true,
		contract.NumberAt(time.Now().Add(25 * time.Hour)): false,
		1<<63 - 1: false,
	} {
		list := &contract.List{Version: version, Nodes: []contract.Node{{Host: "cache-0.cache", IP: "10.0.0.1", Port: 11211}}}
		if err := KeepList(dir, list); err != nil {
			t.Fatal(err)
		}
		if got, err := KeptList(dir); (err == nil) != is || is && got.Version != version {
			t.Errorf("version %d: %+v, %v", version, got, err)
		}
	}
}
