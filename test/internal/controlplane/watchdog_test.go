package controlplane

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A test that Go's time-out ends runs no cleanup. What it has started must not go on.
func TestNothingOutlivesAProcessThatIsKilled(t *testing.T) {
	if os.Getenv("WATCHED") != "" {
		child := exec.Command("sleep", "600")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := watchChildren(); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("child " + strconv.Itoa(child.Process.Pid) + "\n")
		select {}
	}
	self := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	self.Env = append(os.Environ(), "WATCHED=yes")
	out, err := self.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = self.Process.Kill()
	_ = self.Wait()
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "child ")))
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	for end := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil && !zombie(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child lives")
		}
	}
}

// zombie tells whether the process has ended and nobody has asked how.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}
