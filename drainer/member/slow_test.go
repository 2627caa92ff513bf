//go:build linux

package member_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// inject makes system calls on a save that is being written take longer, or ends its supervisor.
func inject(s *drainertest.Served, dir string, injections ...string) {
	arguments := []string{"-f", "-qq", "-o", "/dev/null", "-P", filepath.Join(dir, unfinishedSave), "-e", "trace=fdatasync,pwrite64"}
	for _, i := range injections {
		arguments = append(arguments, "-e", "inject="+i)
	}
	trace(s, arguments...)
}

// The injections: the second half of a save takes minutes, or its supervisor is killed there; or it takes two
// more seconds.
const (
	slowFromHalf  = "pwrite64:delay_enter=10s:when=7+"
	killedHalfway = "pwrite64:signal=KILL:when=7"
	beginsLate    = "fdatasync:delay_enter=2s:when=1"
)

// The progress is in the log and in the termination message. If the member is killed in the middle, the
// message stays, and the items of the written pages are used.
func TestAMemberSaysHowFarItsSaveIs(t *testing.T) {
	tier.Second(t, "TestProgressOfALeavingMember")
	t.Parallel()
	p, objects := newPod(t), midsize('a', 150)
	s := p.start("", fewPages...)
	drainertest.Store(t, s.Address(), objects)
	inject(s, p.volume, slowFromHalf)
	s.Signal(syscall.SIGTERM)
	s.WaitFor("saving: ")
	s.Signal(syscall.SIGKILL)
	s.Wait()
	message, err := os.ReadFile(drainertest.TerminationLog(p.volume))
	if err != nil {
		t.Fatal(err)
	}
	if far := contract.ParseSaving(string(message)); far == nil || far.SavedBytes <= 0 || far.SavedBytes >= far.SaveBytes || far.BytesPerSecond <= 0 || far.BytesPerSecond > far.SavedBytes {
		t.Errorf("the message is %s", message)
	}
	p.expectWhatIsWhole(objects, true)
}

// The next save of the volume knows it, whatever happened to the save in which it was measured.
func TestTheRateOfASaveIsKept(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]bool{"of one that was completed": false, "of one that was cut short": true} {
		t.Run(name, func(t *testing.T) {
			if !cut {
				tier.Second(t, "TestTheRateOfASaveIsKept")
			}
			t.Parallel()
			p, objects := newPod(t), midsize('a', 100)
			s := p.start("", fewPages...)
			drainertest.Store(t, s.Address(), objects)
			injected := []string{beginsLate}
			if cut {
				injected = append(injected, killedHalfway)
			}
			inject(s, p.volume, injected...)
			s.Signal(syscall.SIGTERM)
			if code := s.Wait(); (code != 0) != cut {
				t.Fatalf("exit code %d: %s", code, s.Err.String())
			}
			first := volume.SaveRate(p.volume)
			if first <= 0 || first > 60<<20 {
				t.Errorf("the rate is %d", first)
			}
			p = p.nextPod()
			s = p.start("")
			drainertest.ExpectGenerations(t, p.volume)
			if kept := volume.SaveRate(p.volume); kept != first {
				t.Errorf("the rate is %d, it was %d", kept, first)
			}
			s.End("saved")
		})
	}
}

// The member reports that, and saves the most recently used items first.
func TestTooLittleTime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rate  int64
		short bool
	}{"a slow disk": {1 << 10, true}, "a fast one": {1 << 30, false}} {
		t.Run(name, func(t *testing.T) {
			if !test.short {
				tier.Second(t, "TestTooLittleTime")
			}
			t.Parallel()
			p, objects := newPod(t), midsize('a', 150)
			c := p.serve(fewPages...)
			c.GracePeriod = wait.Long
			s := drainertest.SuperviseCommand(t, "", c)
			drainertest.Store(t, s.Address(), objects)
			note, err := volume.ReadInUse(p.volume)
			if err != nil {
				t.Fatal(err)
			}
			note.Rate = test.rate
			b, err := note.Marshal()
			if err == nil {
				err = os.WriteFile(filepath.Join(p.volume, contract.InUse), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.End("saved")
			if got := strings.Contains(s.Err.String(), "the most recently used items are saved first"); got != test.short {
				t.Errorf("it said %s", s.Err.String())
			}
			p.expectAllOrNothing(objects, false)
		})
	}
}

// The save goes through the page cache.
func TestAFileSystemWithoutDirectIO(t *testing.T) {
	tier.Second(t, "TestWithoutDirectIO")
	t.Parallel()
	p, objects := newPod(t), midsize('a', 100)
	s := p.start(noDirectIO+"yes", fewPages...)
	drainertest.Store(t, s.Address(), objects)
	s.End("saved")
	p.expectAllOrNothing(objects, false)
}
