package member

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/warmfile"
)

// maxAsk bounds how long the supervisor asks a memcached for its version and flags.
const maxAsk = 30 * time.Second

// askBuild is a start.Ask.
func askBuild(ctx context.Context, program string) (version string, flagsBytes int) {
	if version = askVersion(ctx, program); warmfile.SmallFlagsOnly(version) {
		return version, item.SmallFlags
	}
	return version, askFlags(ctx, program)
}

// checkVersion refuses a memcached that is too old, before anything is changed for it. A later check is not
// possible: the goroutine that waits for memcached could then take the exit code of the program that prints
// the version.
func (s *supervisor) checkVersion(ctx context.Context) error {
	s.version = askVersion(ctx, s.Command[0])
	err := memcache.CheckVersion(s.version)
	if err == nil {
		return nil
	}
	return errors.Join(err, s.termination.refuse(contract.ReasonVersionTooOld, err))
}

func askVersion(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, maxAsk)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-V")
	cmd.WaitDelay = time.Second // a child of the program may keep the output open
	defer killWithParent(cmd)()
	out, err := cmd.Output()
	name, version, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || name != "memcached" {
		return ""
	}
	return version
}

// killWithParent makes the kernel kill the command's process when this process is killed. The death signal depends
// on the thread that starts the process, so that thread stays until release is called.
func killWithParent(cmd *exec.Cmd) (release func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr = linux.DiesWithParent()
	return runtime.UnlockOSThread
}

// askFlags starts a memcached without items to ask it, because no option of the command line prints the size
// of client flags. A memcached of another build would resume from the file and serve wrong values.
func askFlags(ctx context.Context, program string) int {
	ctx, cancel := context.WithTimeout(ctx, maxAsk)
	defer cancel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	address := free.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if free.Close() != nil {
		return 0
	}
	cmd := exec.CommandContext(ctx, program, "-l", "127.0.0.1", "-p", port, "-U", "0", "-m", "8", "-t", "1")
	defer killWithParent(cmd)()
	if os.Geteuid() == 0 {
		cmd.Args = append(cmd.Args, "-u", "root")
	}
	if cmd.Start() != nil {
		return 0
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	for ctx.Err() == nil {
		if settings, ok := settingsOf(ctx, address, cmd.Process.Pid); ok {
			return item.FlagsBytes(settings)
		}
		_ = pace.Sleep(ctx, firstLook)
	}
	return 0
}

// settingsOf returns the settings of the memcached at address, if it is process pid.
func settingsOf(ctx context.Context, address string, pid int) (map[string]string, bool) {
	conn, err := memcache.Dialer{}.Dial(ctx, address)
	if err != nil {
		return nil, false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	stats, err := conn.Stats("")
	if err != nil || stats["pid"] != strconv.Itoa(pid) {
		return nil, false
	}
	settings, err := conn.Stats("settings")
	return settings, err == nil
}
