//go:build linux

package member_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/wait"
)

// stepped returns the report of the supervisor at that port.
func stepped(port int32) (s contract.Stepped, err error) {
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, contract.StepPath))
	if err != nil {
		return s, err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	return s, errors.Join(err, json.NewDecoder(response.Body).Decode(&s), response.Body.Close())
}

// ready waits for this answer to the kubelet's probe.
func ready(t *testing.T, port int32, want int) {
	t.Helper()
	wait.For(t, fmt.Sprintf("the answer %d", want), func() error {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, contract.ReadyPath))
		if err != nil {
			return err
		}
		if response.StatusCode != want {
			err = fmt.Errorf("status %d", response.StatusCode)
		}
		return errors.Join(err, response.Body.Close())
	})
}

// A member that is told to start empty has none of its items afterwards, wherever its warm file is. Later
// items stay: the same word makes no later start empty.
func TestAMemberThatIsOutOfTheRingStartsEmptyOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"Mapped", "Saved"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p, told := newPod(t), filepath.Join(t.TempDir(), "out")
			if mode == "Mapped" {
				p.memory = ""
			}
			args := p.serve("-m", "64")
			args.Step, args.ProbePort = told, int32(memcachedtest.FreePort(t))
			start := func(want int64) *drainertest.Served {
				s := drainertest.SuperviseCommand(t, "", args)
				wait.For(t, "a report", func() error {
					is, err := stepped(args.ProbePort)
					if err == nil && is.Empty != want {
						err = fmt.Errorf("it says %+v", is)
					}
					return err
				})
				return s
			}
			tell := func(text string) {
				if err := os.WriteFile(told, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			old, later := map[string]drainertest.Object{"old": {Value: []byte("1")}}, map[string]drainertest.Object{"later": {Value: []byte("2")}}
			tell("") // the annotation of a new pod
			s := start(0)
			drainertest.Store(t, s.Address(), old)
			s.End("saved")
			s = start(0)
			s.ExpectItems(old)
			tell(contract.StepOut(7, "uid-of-the-pod"))
			wait.For(t, "an empty start", func() error {
				is, err := stepped(args.ProbePort)
				if want := (contract.Stepped{Told: "7/uid-of-the-pod", Empty: 7}); err == nil && is != want {
					err = fmt.Errorf("it says %+v", is)
				}
				return err
			})
			s.ExpectItems(nil)
			drainertest.Store(t, s.Address(), later)
			tell(contract.StepAside(7, "uid-of-the-pod"))
			ready(t, args.ProbePort, http.StatusServiceUnavailable)
			tell(contract.StepAside(8, "uid-of-the-pod")) // of the next ring: it starts empty before it may be evicted
			wait.For(t, "an empty start", func() error {
				is, err := stepped(args.ProbePort)
				if err == nil && is.Empty != 8 {
					err = fmt.Errorf("it says %+v", is)
				}
				return err
			})
			ready(t, args.ProbePort, http.StatusServiceUnavailable)
			tell(contract.StepOut(8, "uid-of-the-pod"))
			ready(t, args.ProbePort, http.StatusOK)
			drainertest.Store(t, s.Address(), later)
			s.End("saved")
			s = start(8)
			s.ExpectItems(later)
			s.End("saved")
		})
	}
}

// A member that is told while it ends starts empty the next time.
func TestAMemberThatEndsIsToldAtItsNextStart(t *testing.T) {
	t.Parallel()
	p, told := newPod(t), filepath.Join(t.TempDir(), "out")
	args := p.serve("-m", "64")
	args.Step, args.ProbePort = told, int32(memcachedtest.FreePort(t))
	s := drainertest.SuperviseCommand(t, "", args)
	drainertest.Store(t, s.Address(), map[string]drainertest.Object{"old": {Value: []byte("1")}})
	s.End("saved")
	if err := os.WriteFile(told, []byte(contract.StepOut(3, "uid")), 0o600); err != nil {
		t.Fatal(err)
	}
	s = drainertest.SuperviseCommand(t, "", args)
	wait.For(t, "an empty start", func() error {
		is, err := stepped(args.ProbePort)
		if err == nil && is.Empty != 3 {
			err = fmt.Errorf("it says %+v", is)
		}
		return err
	})
	s.ExpectItems(nil)
	s.End("")
}
