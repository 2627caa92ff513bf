package ring

import (
	"math"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"example.com/memcached-operator/drainer/routing"
)

func of(client string, size int32) Ring { return Ring{Client: client, Port: 11211, Size: size} }

// after is the record after these rings, in order.
func after(rings ...Ring) Record {
	var r Record
	for _, ring := range rings {
		r = r.Next(ring)
	}
	return r
}

func TestSerialCountsTheRingsThatMoveKeysBetweenMembersThatStay(t *testing.T) {
	const consistent, modulo, weighted = "pymemcache", "gomemcache", "libmemcached-ketama-weighted"
	renamed := of(weighted, 3)
	renamed.ServerName = "shard-{ordinal}"
	for name, test := range map[string]struct {
		record   Record
		serial   int64
		fromSize int32
	}{
		"no ring yet":                       {after(), 0, 0},
		"the first members":                 {after(of(consistent, 3)), 0, 0},
		"the same again":                    {after(of(consistent, 3), of(consistent, 3)), 0, 0},
		"hibernated, and back":              {after(of(modulo, 3), of(modulo, 0), of(modulo, 3)), 0, 0},
		"hibernated, and back with more":    {after(of(modulo, 3), of(modulo, 0), of(modulo, 4)), 1, 3},
		"more members":                      {after(of(consistent, 3), of(consistent, 5)), 1, 3},
		"fewer, consistent":                 {after(of(consistent, 5), of(consistent, 2)), 0, 0},
		"fewer, by modulo":                  {after(of(modulo, 5), of(modulo, 2)), 1, 5},
		"fewer, a ring of as many points":   {after(of(weighted, 4), of(weighted, 3)), 0, 0},
		"fewer, a ring that is denser now":  {after(of(weighted, 25), of(weighted, 24)), 1, 25},
		"half of them, by modulo":           {after(of(modulo, 4), of(modulo, 2)), 0, 0},
		"another client":                    {after(of(modulo, 3), of(consistent, 3)), 1, 3},
		"other names":                       {after(of(weighted, 3), renamed), 1, 3},
		"other names that no client hashes": {after(of(modulo, 3), Ring{Client: modulo, ServerName: "s{ordinal}", Port: 11211, Size: 3}), 0, 0},
		"more, then fewer":                  {after(of(consistent, 3), of(consistent, 5), of(consistent, 2)), 1, 3},
		"more, then fewer, then more":       {after(of(consistent, 3), of(consistent, 5), of(consistent, 2), of(consistent, 3)), 2, 2},
		"filled by an unknown ring":         {Unknown(7, 3).Next(of(consistent, 3)), 8, 3},
		"filled by an unknown ring, fewer":  {Unknown(7, 3).Next(of(consistent, 2)), 8, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.record
			if r.Serial != test.serial || r.From.Size != test.fromSize {
				t.Errorf("got %s", r)
			}
			again, err := Parse(r.String())
			if err != nil || again != r {
				t.Errorf("%s is read as %s, %v", r, again, err)
			}
		})
	}
}

func TestSpoiltRecordIsRefused(t *testing.T) {
	for _, s := range []string{
		"", "{", `"ring"`, `{"serial":"2"}`, `{"ring":{"size":2000000000}}`, `{"ring":{"size":-1}}`, `{"serial":-1}`,
		`{"ring":{"client":"nope"}}`, `{"from":{"client":"nope"}}`,
		`{"ring":{"serverName":"` + strings.Repeat("s", maxServerName+1) + `"}}`, `{"from":{"keyPrefix":"` + strings.Repeat("k", maxKeyPrefix+1) + `"}}`,
	} {
		if r, err := Parse(s); err == nil {
			t.Errorf("%q is read as %s", s, r)
		}
	}
}

// The longest record that a spec can lead to is valid.
func TestLongestRecordIsReadBack(t *testing.T) {
	r := Ring{
		Client: "libmemcached-ketama-weighted", KeyPrefix: strings.Repeat("<", maxKeyPrefix), // each takes six bytes in JSON
		ServerName: "{ordinal}" + strings.Repeat("s", maxServerName-len("{ordinal}")), Port: math.MaxUint16, Size: maxSize,
	}
	record := Record{Serial: MaxSerial, Ring: r, From: r}
	if again, err := Parse(record.String()); err != nil || again != record {
		t.Errorf("%d bytes: %v", len(record.String()), err)
	}
}

func TestBoundsAreThoseOfTheAPI(t *testing.T) {
	data, err := os.ReadFile("../../../config/crd/bases/cache.example.com_memcacheds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	fields := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["routing"].Properties
	for field, want := range map[string]int64{"serverName": maxServerName, "keyPrefix": maxKeyPrefix} {
		if got := fields[field].MaxLength; got == nil || *got != want {
			t.Errorf("%s: %v, want %d", field, got, want)
		}
	}
}

func TestTargetsOfTwoRingsDiffer(t *testing.T) {
	a, b := after(of("dalli", 3)), after(of("dalli", 4))
	if a.Serial != b.Serial || a.Target() == b.Target() {
		t.Errorf("%s and %s", a.Target(), b.Target())
	}
	if a.Target() != after(of("dalli", 3)).Target() {
		t.Error("a target is not the same twice")
	}
}

func TestShareIsOfKeysWhoseMemberStays(t *testing.T) {
	for name, test := range map[string]struct {
		from, to Ring
		low, top float64
	}{
		"a new member takes its part":      {of("dskit", 3), of("dskit", 4), 0.2, 0.3},
		"nothing when one leaves":          {of("memcached-proxy", 10), of("memcached-proxy", 9), 0, 0},
		"nearly everything, by modulo":     {of("gomemcache", 10), of("gomemcache", 9), 0.7, 0.9},
		"a prefix that is hashed no more":  {of("pymemcache", 4), Ring{Client: "pymemcache", KeyPrefix: "app:", Port: 11211, Size: 4}, 0.3, 0.9},
		"a prefix that is part of the key": {Ring{Client: "pymemcache", KeyPrefix: "app:", Port: 11211, Size: 4}, of("pymemcache", 4), 0.3, 0.9},
		"an unknown client":                {of("nope", 2), of("dalli", 2), 1, 1},
		"no member was asked":              {of("dalli", 0), of("dalli", 2), 0, 0},
		"no member is asked":               {of("dalli", 2), of("dalli", 0), 0, 0},
		"the one that there is, by modulo": {of("gomemcache", 2), of("gomemcache", 1), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if share := Share(test.from, test.to); share < test.low || share > test.top {
				t.Errorf("%.3f, want %.2f to %.2f", share, test.low, test.top)
			}
		})
	}
}

func TestShareHashesNoMoreThanItsBudget(t *testing.T) {
	for _, client := range routing.Clients() {
		for _, n := range []int32{1, 25, 26, 27, 100, 511, 512} {
			from, to := of(client, 512), of(client, n)
			size := sampleOf(from, to)
			if lookup := from.lookup() + to.lookup(); size*lookup > maxHashes || size < 1000 {
				t.Errorf("%s, 512 and %d members: %d keys, of %d hashes each", client, n, size, lookup)
			}
		}
	}
}

// A small sample gives the same answer as a large one to the question if items have to be moved.
func TestSmallSampleMissesNoMove(t *testing.T) {
	for _, client := range []string{"pymemcache", "pymemcache-bytes"} {
		renamed, prefixed, modulo := of(client, 2), of(client, 512), of("gomemcache", 2)
		renamed.ServerName, prefixed.KeyPrefix = "s{ordinal}", "app:"
		for name, test := range map[string]struct {
			from, to Ring
			moves    bool
		}{
			"one more":                    {of(client, 511), of(client, 512), true},
			"one more, which has none":    {of(client, 495), of(client, 496), true}, // of the keys of the sample
			"one more, which has none, b": {of(client, 508), of(client, 509), true},
			"many more":                   {of(client, 1), of(client, 512), true},
			"one less":                    {of(client, 512), of(client, 511), false},
			"many less":                   {of(client, 512), of(client, 1), false},
			"other names, and many less":  {of(client, 512), renamed, true},
			"another client, many less":   {of(client, 512), modulo, true},
			"from another client, as few": {modulo, of(client, 512), true},
			"another prefix":              {of(client, 512), prefixed, true},
		} {
			if share := Share(test.from, test.to); share > 0 != test.moves {
				t.Errorf("%s, %s: %f", client, name, share)
			}
		}
	}
}

func BenchmarkShare(b *testing.B) {
	long := of("pymemcache", 512)
	long.ServerName = "{ordinal}" + strings.Repeat("1a", 122)
	for name, from := range map[string]Ring{"pymemcache": of("pymemcache", 512), "longest names": long, "dalli": of("dalli", 512)} {
		b.Run(name, func(b *testing.B) {
			to := from
			to.Size--
			for b.Loop() {
				computeShare(from, to)
			}
		})
	}
}

func TestSourceOfAMoveIsNoClaim(t *testing.T) {
	if s := Source("the-uid", "3-0"); s == "the-uid" || !strings.Contains(s, "the-uid") {
		t.Errorf("%q", s)
	}
}
