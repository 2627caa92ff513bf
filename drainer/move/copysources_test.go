package move

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/tier"
)

// The servers of a copy may come from an endpoint for discovery, as ElastiCache has it; older ones have an item.
func TestACopyAsksAnEndpointForItsSources(t *testing.T) {
	t.Parallel()
	all := drainertest.Objects(9, 200)
	_, from := drainertest.Survivors(t, 2)
	drainertest.StoreByOwner(t, "gomemcache", from, all)
	var nodes []string
	for _, a := range from {
		host, port, _ := strings.Cut(a, ":")
		nodes = append(nodes, fmt.Sprintf("%s|%s|%s", host, host, port))
	}
	list := "12\n" + strings.Join(nodes, " ") + "\n"
	for name, question := range map[string]string{"discovery": "config get cluster", "older": "get " + contract.ListKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "older" {
				tier.Second(t, "TestACopyAsksAnEndpointForItsSources/discovery")
			}
			endpoint := fake(t, func(request string) string {
				if request != question {
					return "ERROR\r\n"
				}
				if name == "older" {
					return fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", contract.ListKey, len(list), list)
				}
				return fmt.Sprintf("CONFIG cluster 0 %d\r\n%s\r\nEND\r\n", len(list), list)
			})
			_, to := drainertest.Survivors(t, 1, roomy...)
			c := copyArgs(t, "gomemcache", nil, to)
			c.From, c.FromClient = []string{contract.FromDiscovery + endpoint}, "gomemcache"
			mustCopy(t, c)
			drainertest.Check(t, "gomemcache", to, all)
		})
	}
}

// A source may have TLS and logins of its own.
func TestACopyFromASecuredSource(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyAsksAnEndpointForItsSources/discovery")
	secured := memcachedtest.NewSecured(t)
	secured.Login("user:password\n")
	from := memcachedtest.StartBy(t, secured.Connection())
	all := drainertest.Objects(9, 200)
	drainertest.StoreBy(t, memcache.Dialer{Connection: secured.Connection()}, from.Address(), all)
	_, to := drainertest.Survivors(t, 2, roomy...)
	c := copyArgs(t, "gomemcache", []string{from.Address()}, to)
	c.FromConnection = secured.Connection()
	mustCopy(t, c)
	drainertest.Check(t, "gomemcache", to, all)
}

// Volumes of members are copied as a drain reads them, and stay as they are.
func TestACopyFromVolumes(t *testing.T) {
	t.Parallel()
	all, want := []map[string]drainertest.Object{drainertest.Objects(9, 300), drainertest.Objects(10, 300)}, map[string]drainertest.Object{}
	for i := range 60 {
		all[0][fmt.Sprintf("large:%d", i)] = drainertest.Object{Value: make([]byte, 100_000)}
	}
	maps.Copy(want, all[1])
	maps.Copy(want, all[0]) // what both have is the first one's
	var dirs []string
	for _, objects := range all {
		dir := t.TempDir()
		s := drainertest.Serve(t, dir, "-m", "64")
		drainertest.Store(t, s.Address(), objects)
		s.End("saved")
		dirs = append(dirs, dir)
	}
	before := []string{drainertest.Fingerprint(t, dirs[0]), drainertest.Fingerprint(t, dirs[1])}
	_, to := drainertest.Survivors(t, 2, roomy...)
	c := copyArgs(t, "gomemcache", nil, to)
	c.From = []string{contract.FromVolumes + strings.Join(dirs, ",")}
	if r := mustCopy(t, c); r.Receipt.Reader != contract.ReaderWarmFile || r.Receipt.Passes != 1 {
		t.Errorf("%+v", r.Receipt)
	}
	drainertest.Check(t, "gomemcache", to, want)
	for i, dir := range dirs {
		if drainertest.Fingerprint(t, dir) != before[i] {
			t.Errorf("the volume %d has changed", i)
		}
	}
	_, small := drainertest.Survivors(t, 1, "-m", "4")
	c.Servers = small
	if r := runCopy(t, c); r.Code != contract.ExitUsage || r.Receipt.Reason != contract.ReasonTargetTooSmall {
		t.Errorf("to a server that is too small: exit code %d, %+v", r.Code, r.Receipt)
	}
}

// A member of ours streams its items, and is listed in later passes.
func TestACopyFromAMembersStream(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyFromVolumes")
	dir, port := t.TempDir(), memcachedtest.FreePort(t)
	args := drainertest.MemberArgs(contract.Connection{}, dir, port, "-m", "64")
	args.ExportPort = int32(memcachedtest.FreePort(t))
	s := drainertest.SuperviseCommand(t, "", args)
	all := drainertest.Objects(9, 300)
	drainertest.Store(t, s.Address(), all)
	_, to := drainertest.Survivors(t, 2, roomy...)
	c := copyArgs(t, "gomemcache", []string{s.Address()}, to)
	c.FromExportPort = args.ExportPort
	if r := mustCopy(t, c); r.Receipt.Reader != contract.ReaderStream || r.Receipt.Passes != 2 {
		t.Errorf("%+v\n%s", r.Receipt, r.Err)
	}
	drainertest.Check(t, "gomemcache", to, all)
}

// Servers without CAS are copied from and to, and an item that is too large for the servers is counted, and left out.
func TestACopyBetweenOtherSettings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source, target []string
		cantTell       string
		large          int
		tooLarge       int64
	}{
		"source without CAS": {source: []string{"-C"}, cantTell: contract.CantTellChanges},
		"target without CAS": {target: []string{"-C"}, cantTell: contract.CantTellCopies},
		"large items":        {source: []string{"-I", "4m", "-m", "100"}, target: []string{"-I", "4m"}, cantTell: contract.CantTellCopies, large: 2 << 20},
		"too large items":    {source: []string{"-I", "4m", "-m", "100"}, cantTell: contract.CantTellCopies, large: 2 << 20, tooLarge: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tier.Second(t, "TestACopyFromVolumes")
			all := drainertest.Objects(9, 200)
			if test.large > 0 {
				all["large"] = drainertest.Object{Value: make([]byte, test.large)}
			}
			from := memcachedtest.Start(t, test.source...)
			drainertest.Store(t, from.Address(), all)
			_, to := drainertest.Survivors(t, 1, append(test.target, roomy...)...)
			c := copyArgs(t, "gomemcache", []string{from.Address()}, to)
			c.Passes = 1
			r := mustCopy(t, c)
			if test.tooLarge > 0 {
				delete(all, "large")
			}
			if !strings.Contains(strings.Join(r.Receipt.CantTell, " "), test.cantTell) || r.Receipt.TooLarge != test.tooLarge || r.Receipt.Rejected != test.tooLarge {
				t.Errorf("%+v", r.Receipt)
			}
			drainertest.Check(t, "gomemcache", to, all)
		})
	}
}

// A copy adds no faster than it is told.
func TestACopyKeepsItsLimit(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestACopyFromVolumes")
	all := drainertest.Objects(9, 300)
	_, from := drainertest.Survivors(t, 2)
	drainertest.StoreByOwner(t, "gomemcache", from, all)
	_, to := drainertest.Survivors(t, 2, roomy...)
	c := copyArgs(t, "gomemcache", from, to)
	c.Passes, c.RateLimitItems = 1, 200
	if r := mustCopy(t, c); r.Receipt.Seconds[contract.PhaseAdding] < 1 {
		t.Errorf("%+v", r.Receipt)
	}
	drainertest.Check(t, "gomemcache", to, all)
}
