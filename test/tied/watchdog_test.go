package tied

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/test/wait"
)

// A test that Go's time-out ends runs no cleanup. The processes that it has started must end, and those that
// these have started, and their files must go.
func TestNothingOutlivesAProcessThatIsKilled(t *testing.T) {
	if os.Getenv("WATCHED_TEST") != "" {
		watched(t)
		select {}
	}
	self := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	self.Env = append(os.Environ(), "WATCHED_TEST=yes")
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
	var dir string
	var child, grandchild int
	if _, scan := fmt.Sscanf(line, "%s %d %d", &dir, &child, &grandchild); scan != nil {
		t.Fatalf("%q: %v, %v", line, err, scan)
	}
	wait.For(t, "no process and no file", func() error {
		for _, pid := range []int{child, grandchild} {
			if syscall.Kill(pid, 0) == nil && !zombie(pid) {
				return fmt.Errorf("%d lives", pid)
			}
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			return fmt.Errorf("%s is there: %w", dir, err)
		}
		return nil
	})
}

// watched starts a child that starts another one, and prints where their files are, and their numbers.
func watched(t *testing.T) {
	w, err := Watch("watched")
	if err != nil {
		t.Fatal(err)
	}
	if file, err := os.CreateTemp("", "file"); err != nil || !strings.HasPrefix(file.Name(), w.Dir) {
		t.Fatal(file.Name(), err)
	}
	child := exec.Command("sh", "-c", `sleep 600 & echo $!; wait`)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	grandchild, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprint(os.Stdout, w.Dir, " ", child.Process.Pid, " ", grandchild)
}

func TestStopEndsWhatHasBeenStartedAndNothingElse(t *testing.T) {
	other := sleep(t)
	before := os.TempDir()
	w, err := Watch("watched")
	if err != nil {
		t.Fatal(err)
	}
	mine := sleep(t)
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := mine.Wait(); err == nil {
		t.Error("the processes that were started were not killed")
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process that was started before: %v", err)
	}
	if _, err := os.Stat(w.Dir); !os.IsNotExist(err) || os.TempDir() != before {
		t.Errorf("%s: %v; temporary files go to %s", w.Dir, err, os.TempDir())
	}
}

func sleep(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// zombie tells whether the process has ended, and its parent has not waited for it.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
