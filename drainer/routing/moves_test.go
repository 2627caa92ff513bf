package routing

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var printTable = flag.Bool("print-table", false, "print the list of docs/clients.md")

// Moves computes the list in docs/clients.md, for every client.
func TestTheDocumentedSharesAreWhatMovesComputes(t *testing.T) {
	const path = "../../docs/clients.md"
	var table strings.Builder
	sizes := []int{3, 47}
	for _, client := range Clients() {
		var shares []string
		for _, n := range sizes {
			s, err := Moves(client, members(n), members(n-1))
			if err != nil {
				t.Fatal(err)
			}
			shares = append(shares, fmt.Sprintf("%.1f + %.1f", 100*s.Leaving, 100*s.Others))
		}
		fmt.Fprintf(&table, "- `%s`: %s\n", client, strings.Join(shares, ", "))
	}
	if *printTable {
		fmt.Print(table.String())
	}
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), table.String()) {
		t.Errorf("the list in %s is not this one (run with -print-table):\n%s", path, table.String())
	}
	for _, client := range Clients() {
		if said := "client: " + client; !strings.Contains(string(doc), said+"\n") && !strings.Contains(string(doc), "`routing."+said+"`\n") {
			t.Errorf("%s doesn't say when to set client: %s", path, client)
		}
	}
}

func members(n int) []Server {
	servers := make([]Server, n)
	for i := range servers {
		servers[i] = Server{Host: fmt.Sprintf("cache-%d.cache.default.svc", i), Port: DefaultPort}
	}
	return servers
}

// Jump hash moves only the keys of a leaving server; modulo moves nearly all keys.
func TestJumpHashMovesWhatLeavesAndModuloNearlyAll(t *testing.T) {
	if s, err := Moves("memcached-proxy", members(10), members(9)); err != nil || s.Others != 0 || s.Arriving != 0 {
		t.Errorf("jump hash: %+v, %v, want none of those that stay", s, err)
	}
	if s, err := Moves("gomemcache", members(10), members(9)); err != nil || s.Others < 0.7 {
		t.Errorf("modulo: %+v, %v, want most", s, err)
	}
	if s, err := Moves("memcached-proxy", members(9), members(10)); err != nil || s.Arriving < 0.05 || s.Others != 0 || s.Leaving != 0 {
		t.Errorf("jump hash over one more: %+v, %v, want the new one's share alone", s, err)
	}
	if _, err := Moves("nope", members(2), members(1)); err == nil {
		t.Error("an unknown client is no error")
	}
}
