package routing

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// peerCommand is a program with testdata/peer.py's protocol that answers by the real client:
//
//	go test ./drainer/routing -run TestOwnersAreThoseThatTheRealClientsAnswered/memjs -peer "node testdata/memjs.js"
//
// The test compares key by key and writes the client's answers to testdata/vectors. testdata/mcrouter.c and
// testdata/dskit (go build, in its directory) are the programs of the others.
var peerCommand = flag.String("peer", "", "a program that asks the real client, to record its vectors")

// recorded are the clients that have no Debian package, or need more dependencies than the operator: the real
// client was asked once.
var recorded = map[string]peer{
	"memjs":    {keys: "utf8"},
	"dskit":    {host: loopback},
	"mcrouter": {},
}

// The owners of 20,000 keys in every list are the real client's recorded answers.
func TestOwnersAreThoseThatTheRealClientsAnswered(t *testing.T) {
	for client, p := range recorded {
		t.Run(client, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 1))
			keys := p.randomKeys(r, manyKeys)
			questions := p.questions(r, len(keys), allSizes)
			path := "testdata/vectors/" + client + ".json"
			if *peerCommand != "" {
				want := library{command: strings.Fields(*peerCommand)}.ask(t, client, questions, keys)
				compare(t, client, questions, keys, want)
				record(t, path, questions, want)
			}
			want := map[string]string{}
			if data, err := os.ReadFile(path); err != nil {
				t.Fatal(err)
			} else if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			for l, q := range questions {
				owner, err := New(client, q.servers)
				if err != nil {
					t.Fatal(err)
				}
				owners := make([]int, len(keys))
				for i, key := range keys {
					owners[i] = owner.Owner(key)
				}
				if got := digest(owners); got != want[listName(l, q.servers)] {
					t.Errorf("%s: the owners differ from what the client answered", listName(l, q.servers))
				}
			}
		})
	}
}

func listName(l int, servers []Server) string {
	return fmt.Sprintf("list %02d, %d servers", l, len(servers))
}

func record(t *testing.T, path string, questions []question, owners [][]int) {
	t.Helper()
	vectors := map[string]string{}
	for l, q := range questions {
		vectors[listName(l, q.servers)] = digest(owners[l])
	}
	data, err := json.MarshalIndent(vectors, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func digest(owners []int) string {
	sum := sha256.Sum256(fmt.Append(nil, owners))
	return hex.EncodeToString(sum[:16])
}
