// Package tied starts processes that end when the test binary ends, even if that is killed. A Watchdog ends
// the processes that they start in turn, and removes temporary files.
package tied

import (
	"bytes"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter starts every process. The kernel kills a child when the thread that started it ends, not
// its process (PR_SET_PDEATHSIG), and the runtime ends a thread when a goroutine that is locked to it
// returns. So the starter's goroutine has a thread of its own, and never returns.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})

// Start is cmd.Start.
func Start(cmd *exec.Cmd) (err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	dieWithParent(cmd.SysProcAttr)
	done := make(chan struct{})
	starter() <- func() {
		err = cmd.Start()
		close(done)
	}
	<-done
	return err
}

// CombinedOutput is cmd.CombinedOutput.
func CombinedOutput(cmd *exec.Cmd) ([]byte, error) {
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	return b.Bytes(), err
}
