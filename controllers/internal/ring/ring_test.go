package ring

import (
	"strings"
	"testing"
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

func TestPlacementIsDueWhereKeysMoveBetweenMembersThatHoldItems(t *testing.T) {
	const consistent, modulo, weighted = "pymemcache", "gomemcache", "libmemcached-ketama-weighted"
	renamed := of(weighted, 3)
	renamed.ServerName = "shard-{ordinal}"
	for name, test := range map[string]struct {
		record      Record
		serial, due int64
		holding     int32
		fromSize    int32
	}{
		"no ring yet":                         {record: after(), serial: 0},
		"the first members":                   {record: after(of(consistent, 3)), serial: 1},
		"the same again":                      {record: after(of(consistent, 3), of(consistent, 3)), serial: 1},
		"hibernated, and back":                {record: after(of(modulo, 3), of(modulo, 0), of(modulo, 3)), serial: 1},
		"hibernated, and back with more":      {record: after(of(modulo, 3), of(modulo, 0), of(modulo, 4)), serial: 2, due: 2, holding: 3, fromSize: 3},
		"more members":                        {record: after(of(consistent, 3), of(consistent, 5)), serial: 2, due: 2, holding: 3, fromSize: 3},
		"fewer, consistent":                   {record: after(of(consistent, 5), of(consistent, 2)), serial: 2},
		"fewer, by modulo":                    {record: after(of(modulo, 5), of(modulo, 2)), serial: 2, due: 2, holding: 2, fromSize: 5},
		"fewer, a ring of as many points":     {record: after(of(weighted, 4), of(weighted, 3)), serial: 2},
		"fewer, a ring that is denser now":    {record: after(of(weighted, 25), of(weighted, 24)), serial: 2, due: 2, holding: 24, fromSize: 25},
		"half of them, by modulo":             {record: after(of(modulo, 4), of(modulo, 2)), serial: 2},
		"another client":                      {record: after(of(modulo, 3), of(consistent, 3)), serial: 2, due: 2, holding: 3, fromSize: 3},
		"other names":                         {record: after(of(weighted, 3), renamed), serial: 2, due: 2, holding: 3, fromSize: 3},
		"other names that nobody hashes":      {record: after(of(modulo, 3), Ring{Client: modulo, ServerName: "s{ordinal}", Port: 11211, Size: 3}), serial: 2},
		"more, then fewer":                    {record: after(of(consistent, 3), of(consistent, 5), of(consistent, 2)), serial: 3, due: 2, holding: 3, fromSize: 3},
		"more, then fewer, then more":         {record: after(of(consistent, 3), of(consistent, 5), of(consistent, 2), of(consistent, 3)), serial: 4, due: 4, holding: 2, fromSize: 2},
		"filled by nobody knows which":        {record: Unknown(7, 3).Next(of(consistent, 3)), serial: 8, due: 8, holding: 3, fromSize: 3},
		"filled by nobody knows which, fewer": {record: Unknown(7, 3).Next(of(consistent, 2)), serial: 8, due: 8, holding: 2, fromSize: 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.record
			if r.Serial != test.serial || r.Due != test.due || r.Holding != test.holding || r.From.Size != test.fromSize {
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
	for _, s := range []string{"", "{", `"ring"`, `{"serial":"2"}`, `{"ring":{"size":2000000000}}`, `{"ring":{"size":-1}}`, `{"holding":513}`} {
		if r, err := Parse(s); err == nil {
			t.Errorf("%q is read as %s", s, r)
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
		"a prefix that is hashed no more":  {of("pymemcache", 4), Ring{Client: "pymemcache", KeyPrefix: "app:", Port: 11211, Size: 4}, 0.6, 0.9},
		"a client that nobody knows":       {of("nope", 2), of("dalli", 2), 1, 1},
		"nobody was asked":                 {of("dalli", 0), of("dalli", 2), 0, 0},
		"nobody is asked":                  {of("dalli", 2), of("dalli", 0), 0, 0},
		"the one that there is, by modulo": {of("gomemcache", 2), of("gomemcache", 1), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if share := Share(test.from, test.to); share < test.low || share > test.top {
				t.Errorf("%.3f, want %.2f to %.2f", share, test.low, test.top)
			}
		})
	}
}

func TestSourceOfAPlacementIsNoClaim(t *testing.T) {
	if s := Source("the-uid", "3-0"); s == "the-uid" || !strings.Contains(s, "the-uid") {
		t.Errorf("%q", s)
	}
}
