package routing

import (
	"context"
	"errors"
	"net/netip"
	"testing"
)

// The name has the first IPv4 address, and only for the clients that hash it.
func TestResolveNamesServersAsJavaDoes(t *testing.T) {
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "gone" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.1")}, nil
	}
	for client, want := range map[string]string{
		"spymemcached-ketama": "cache-0/10.0.0.1:11300",
		"evcache":             "cache-0/10.0.0.1",
		"gomemcache":          "",
	} {
		got, err := Resolve(t.Context(), client, []Server{{Host: "cache-0", Port: 11300}}, lookup)
		if err != nil || got[0].Name != want {
			t.Errorf("%s: %+v, %v, want the name %q", client, got, err, want)
		}
	}
	if _, err := Resolve(t.Context(), "evcache", []Server{{Host: "gone", Port: 1}}, lookup); err == nil {
		t.Error("a host without an address is no error")
	}
}
