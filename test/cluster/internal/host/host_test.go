package host

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"
	"testing"
)

func TestOnlyRulesWithOurCommentAreDeleted(t *testing.T) {
	rules := `-P FORWARD ACCEPT
-N DOCKER
-A FORWARD -i mco0 -m comment --comment memcached-operator-cluster -j ACCEPT
-A FORWARD -i docker0 -m comment --comment "memcached-operator-cluster is not mine" -j ACCEPT
-A FORWARD -i mco0 -j ACCEPT
-A FORWARD -i eth0 -m comment --comment memcached-operator-cluster-2 -j DROP
-A POSTROUTING -s 10.88.0.0/16 ! -o mco0 -m comment --comment "memcached-operator-cluster" -j MASQUERADE
`
	want := [][]string{
		{"-D", "FORWARD", "-i", "mco0", "-m", "comment", "--comment", "memcached-operator-cluster", "-j", "ACCEPT"},
		{"-D", "POSTROUTING", "-s", "10.88.0.0/16", "!", "-o", "mco0", "-m", "comment", "--comment", "memcached-operator-cluster", "-j", "MASQUERADE"},
	}
	if got := deletions(rules, "memcached-operator-cluster"); !reflect.DeepEqual(got, want) {
		t.Errorf("want %q, got %q", want, got)
	}
}

func TestATableInUseIsNotRemoved(t *testing.T) {
	const base = "\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy accept;\n"
	for name, test := range map[string]struct {
		listing string
		want    bool
	}{
		"empty":                {"table ip filter {\n" + base + "\t}\n}\n", true},
		"no chain at all":      {"table ip filter {\n}\n", true},
		"a rule":               {"table ip filter {\n" + base + "\t\tcounter packets 1 bytes 2 accept\n\t}\n}\n", false},
		"a chain of Docker's":  {"table ip filter {\n\tchain DOCKER {\n\t}\n\n" + base + "\t}\n}\n", false},
		"a policy of a person": {"table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := onlyEmptyBaseChains(test.listing); got != test.want {
				t.Errorf("want %v, got %v for\n%s", test.want, got, test.listing)
			}
		})
	}
}

func TestMountsUnderADirectory(t *testing.T) {
	all := parseMounts(`22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /sys/fs/cgroup/pids rw shared:9 - cgroup cgroup rw,pids
31 22 0:27 / /var/lib/a\040b/c rw - tmpfs tmpfs rw
32 22 0:28 / /var/lib/abc rw - tmpfs tmpfs rw
`)
	var got []string
	for _, mount := range all {
		if isUnder(mount.point, []string{"/var/lib/a b"}) {
			got = append(got, mount.point)
		}
	}
	if want := []string{"/var/lib/a b/c"}; !reflect.DeepEqual(got, want) {
		t.Errorf("want %q, got %q", want, got)
	}
	if len(all) != 4 || all[1].kind != "cgroup" || all[1].options != "rw,pids" {
		t.Errorf("want the cgroup mount with its options, got %+v", all)
	}
}

func TestMountsAreFoundThroughALink(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("TESTS") != "" {
			t.Fatal("only root may mount, and make test runs everything")
		}
		t.Skip("only root may mount: sudo make test runs this")
	}
	link, disk := filepath.Join(t.TempDir(), "link"), t.TempDir()
	if err := errors.Join(os.Symlink(filepath.Dir(disk), link), syscall.Mount("none", disk, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	if err := UnmountUnder(link); err != nil {
		t.Fatal(err)
	}
	all, err := mounts()
	if err != nil || slices.ContainsFunc(all, func(m mount) bool { return m.point == disk }) {
		t.Errorf("%s is still mounted: %v", disk, err)
	}
}

func TestSubnetInUseIsNoticed(t *testing.T) {
	if err := CheckSubnet(netip.MustParsePrefix("127.0.0.0/16"), "none"); err == nil {
		t.Error("127.0.0.0/16 belongs to lo; want an error")
	}
	if err := CheckSubnet(netip.MustParsePrefix("127.0.0.0/16"), "lo"); err != nil {
		t.Errorf("our own device is not in the way: %v", err)
	}
}
