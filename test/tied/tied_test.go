package tied

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/test/wait"
)

const asChild = "TIED_TEST_CHILD"

// TestAKilledTestBinaryLeavesNoProcess also shows that a process goes on while other threads end.
func TestAKilledTestBinaryLeavesNoProcess(t *testing.T) {
	if os.Getenv(asChild) != "" {
		startAndStay(t)
		return
	}
	self := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	self.Env = append(os.Environ(), asChild+"=1")
	self.Stderr = os.Stderr
	out, err := self.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(self); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, convErr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || convErr != nil {
		t.Fatalf("%q: %v, %v", line, err, convErr)
	}
	if err := gone(pid); err == nil {
		t.Error("the process ended with some thread")
	}
	if err := self.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = self.Wait()
	wait.For(t, "the process to end", func() error { return gone(pid) })
}

// startAndStay starts a process, ends many threads, and prints the process's number.
func startAndStay(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := Start(cmd); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		var all sync.WaitGroup
		for range 10 {
			all.Go(runtime.LockOSThread) // the thread ends with it
		}
		all.Wait()
	}
	fmt.Println(cmd.Process.Pid)
	time.Sleep(wait.Long) // the runtime ends a process whose goroutines wait for nothing
}

// gone returns nil if a process has ended. The process may be a zombie, until its new parent waits for it.
func gone(pid int) error {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil || strings.Contains(string(stat), ") Z ") {
		return nil
	}
	return fmt.Errorf("it is there: %s", stat)
}
