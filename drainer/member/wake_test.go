package member_test

import (
	"strings"
	"testing"
	"time"
)

// TestAMemcachedThatIsToldToEndIsWoken: by itself it looks once a second whether it was told to.
func TestAMemcachedThatIsToldToEndIsWoken(t *testing.T) {
	t.Parallel()
	s := impatient(t, newPod(t), time.Minute, "-m", "64", "-vv")
	proven(t, s)
	s.End("saved")
	_, said, _ := strings.Cut(s.Err.String(), "saving the cache")
	said, _, ends := strings.Cut(said, "the cache is saved")
	if !ends || !strings.Contains(said, "client connection") {
		t.Errorf("nobody connected to memcached before it ended: %s", said)
	}
}
