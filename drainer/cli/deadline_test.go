package cli_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

func TestADrainEndsAtItsDeadlineAndMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	dir := drainertest.Leaving(t, "saved", drainertest.Objects(3, 100))
	m := drainertest.DrainArgs(t, dir, []string{silent.Addr().String()})
	m.Deadline = time.Second
	ended := make(chan drainertest.Result, 1)
	go func() { ended <- drainertest.Drain(t, m) }()
	r := wait.Receive(t, "the drain to end", ended)
	if r.Code != contract.ExitFailed || r.Receipt.Reason != contract.ReasonDeadlineExceeded || r.Receipt.ExitCode != contract.ExitFailed {
		t.Errorf("exit code %d, receipt %+v", r.Code, r.Receipt)
	}
	r.OneLine(t, silent.Addr().String(), "it was not done after 1s", "--deadline")
	if err := r.Receipt.AddsUp(m.SourceID); err == nil {
		t.Error("the receipt adds up")
	}
}

func TestADeadlineThatIsNotReachedChangesNothing(t *testing.T) {
	tier.Second(t, "TestADrainEndsAtItsDeadlineAndMayBeTriedAgain")
	t.Parallel()
	_, servers := drainertest.Survivors(t, 2)
	m := drainertest.DrainArgs(t, drainertest.Leaving(t, "saved", drainertest.Objects(3, 100)), servers)
	m.Deadline = time.Hour
	if r := drainertest.Drain(t, m); r.Code != 0 || r.Receipt.Found != 100 {
		t.Errorf("exit code %d, receipt %+v", r.Code, r.Receipt)
	}
}

func TestANegativeDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	m := drainertest.DrainArgs(t, t.TempDir(), []string{"127.0.0.1:1"})
	r := drainertest.RunMain(t, append(m.Args(), "--"+contract.FlagDeadline+"=-1s")...)
	if r.Code != contract.ExitUsage || !strings.Contains(r.Err, "must not be negative") {
		t.Errorf("exit code %d: %s", r.Code, r.Err)
	}
}
