//go:build linux

package member

import (
	"strings"
	"testing"
)

func TestTheMemberIsAskedWhereItListens(t *testing.T) {
	for line, want := range map[string]string{
		"memcached": "127.0.0.1", "memcached -l 10.0.0.1": "10.0.0.1", "memcached -l10.0.0.1:5": "10.0.0.1",
		"memcached --listen=a,b": "a", "memcached --listen ::1": "::1", "memcached -l 0.0.0.0": "127.0.0.1", "memcached -l ::": "::1",
	} {
		if got := listenHost(strings.Fields(line), "127.0.0.1"); got != want {
			t.Errorf("listenHost(%q) = %q, want %q", line, got, want)
		}
	}
	if got := listenHost([]string{"memcached", "-l", "::"}, ""); got != "" {
		t.Errorf("items are streamed at %q alone", got)
	}
}
