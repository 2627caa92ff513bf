package member_test

import (
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
)

// TestASaveThatFindsTheDiskFullDropsWhatIsOutdated, although there was room for both when it began:
// somebody else took it, or a quota counts. Then it goes on.
func TestASaveThatFindsTheDiskFullDropsWhatIsOutdated(t *testing.T) {
	for name, test := range map[string]struct {
		fault fault
		fails bool
	}{
		"a quota is full in the middle":          {fault: fault{call: "pwrite64", file: unfinishedSave, n: 7, fail: "EDQUOT"}},
		"there is no room for the file":          {fault: fault{call: "fallocate", file: unfinishedSave, n: 1, fail: "ENOSPC"}},
		"its header finds no room":               {fault: fault{call: "pwrite64", file: unfinishedSave, n: 1, fail: "ENOSPC"}},
		"a server takes it, and says so later":   {fault: fault{call: "fsync", file: unfinishedSave, n: 1, fail: "EDQUOT"}},
		"there is no room without it, either":    {fault: fault{call: "fallocate", file: unfinishedSave, fail: "ENOSPC"}, fails: true},
		"no page finds room, with or without it": {fault: fault{call: "fdatasync", file: unfinishedSave, fail: "ENOSPC"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "a quota is full in the middle" {
				tier.Second(t, "TestASaveThatFindsTheDiskFullDropsWhatIsOutdated/a_quota_is_full_in_the_middle")
			}
			t.Parallel()
			p := newPod(t)
			s := p.start("", fewPages...)
			drainertest.Store(t, s.Address(), midsize('a', 80))
			s.End("saved")
			p = p.again()
			s = p.start("")
			all := midsize('b', 80)
			drainertest.Store(t, s.Address(), all)
			test.fault.on(p.volume).attach(s)
			s.Signal(syscall.SIGTERM)
			code := s.Wait()
			if said := s.Err.String(); (code != 0) != test.fails || !strings.Contains(said, "the outdated save on it is removed") {
				t.Errorf("exit code %d: %s", code, said)
			}
			if test.fails {
				p.expectAllOrNothing(all, true, warmfile.ReasonSaveFailed)
				return
			}
			p.expectFiles(contract.InUse, contract.LockFile, contract.SaveFile)
			p.expectAllOrNothing(all, false)
		})
	}
}

// TestASaveThatFindsTheDiskFullDropsTheOldestGeneration, if no save is outdated.
func TestASaveThatFindsTheDiskFullDropsTheOldestGeneration(t *testing.T) {
	tier.Second(t, "TestASaveThatFindsTheDiskFullDropsWhatIsOutdated")
	t.Parallel()
	p := newPod(t)
	s := p.start("", fewPages...)
	drainertest.Store(t, s.Address(), midsize('a', 80))
	s.End("saved")
	p = p.again()
	if err := volume.Keep(p.volume, 1, true); err != nil {
		t.Fatal(err)
	}
	s = p.start("")
	all := midsize('b', 80)
	drainertest.Store(t, s.Address(), all)
	fault{call: "pwrite64", file: unfinishedSave, n: 7, fail: "ENOSPC"}.on(p.volume).attach(s)
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 || !strings.Contains(s.Err.String(), "is removed to make room on the volume") {
		t.Errorf("exit code %d: %s", code, s.Err.String())
	}
	drainertest.ExpectGenerations(t, p.volume)
	p.expectAllOrNothing(all, false)
}
