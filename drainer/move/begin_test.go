package move

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// Until then it has moved nothing, and reports that it is prepared. Items that clients store meanwhile are
// moved, too. The same holds if it is told to take leases.
func TestAMoveThatIsPreparedBeginsWhenItIsTold(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"told": "ring 2\n", "told to take leases": "ring 2+leases"} {
		t.Run(name, func(t *testing.T) { begins(t, text) })
	}
}

func begins(t *testing.T, text string) {
	bothWays(t, func(t *testing.T, streamed bool) {
		if streamed == strings.HasSuffix(text, contract.BeginLeases) {
			tier.Second(t, "TestAMoveThatIsPreparedBeginsWhenItIsTold/told/streamed")
		}
		f := newLeavingMember(t, 1000, streamed)
		e := f.engine()
		file := filepath.Join(t.TempDir(), "begin")
		e.Begin = &contract.Begin{File: file, When: "ring 2", Within: wait.Long}
		source := drainertest.MustParse(t, []string{f.member.Address()})[0]
		done := make(chan contract.Receipt, 1)
		go func() { done <- e.MoveFromLeaving(t.Context(), source, t.TempDir(), time.Millisecond) }()
		wait.For(t, "the move to be prepared", func() error {
			if len(f.said(contract.PhasePrepared)) == 0 {
				return errors.New("it is not")
			}
			return nil
		})
		s := starting{Begin: *e.Begin}
		for _, other := range []string{"", "ring 1", "ring 2 3", "ring 22", "ring", "+leases", "ring 1+leases"} {
			write(t, file, other)
			if begin, _ := s.says(); begin {
				t.Errorf("%q tells it to begin", other)
			}
		}
		more := map[string]drainertest.Object{}
		for key := range drainertest.Objects(10, 100) {
			more[key] = drainertest.Object{Value: []byte("stored meanwhile")}
			f.all[key] = more[key]
		}
		drainertest.Store(t, f.member.Address(), more)
		if said := f.said(contract.PhaseAdding); len(said) > 0 || f.servers[0].Items(t)+f.servers[1].Items(t) > 0 {
			t.Fatalf("it has begun: %d items, %q", f.servers[0].Items(t)+f.servers[1].Items(t), said)
		}
		write(t, file, text)
		r := <-done
		f.check(r)
		if r.Found != int64(len(f.all)) || r.Seconds[contract.PhasePrepared] == 0 {
			t.Errorf("%+v", r)
		}
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
}

// It ends, and another move may be told to begin.
func TestAMoveThatIsNotToldToBeginEnds(t *testing.T) {
	t.Parallel()
	f := newLeavingMember(t, 100, true)
	a := drainertest.MoveArgs(t, "gomemcache", f.member.Address(), []string{f.list[0].Address(), f.list[1].Address()})
	a.ExportPort = int32(drainertest.MustParse(t, []string{f.export.Address})[0].Port)
	a.Begin = contract.Begin{File: filepath.Join(t.TempDir(), "begin"), When: "2", Within: time.Second}
	r := drainertest.Move(t, a)
	if r.Code != contract.ExitFailed || r.Receipt.Reason != contract.ReasonNotBegun || r.Receipt.Found != 0 || r.Receipt.Complete {
		t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
	}
	if n := f.member.Items(t); n != 100 {
		t.Errorf("%d items are left", n)
	}
	a.Deadline = a.Begin.Within
	if r := drainertest.Move(t, a); r.Code != contract.ExitUsage {
		t.Errorf("as long as the deadline: exit code %d", r.Code)
	}
	a.Begin.When, a.Deadline = "", 0
	if r := drainertest.Move(t, a); r.Code != contract.ExitUsage || !strings.Contains(r.Err, contract.FlagBeginWhen) {
		t.Errorf("without a text: exit code %d, %s", r.Code, r.Err)
	}
}
