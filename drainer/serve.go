package drainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/warmfile"
)

// supervisor runs one memcached, with its warm file in dir, from start to save.
type supervisor struct {
	// volume is the member's; dir is the same, or, where the warm file is in memory,
	// the directory there.
	volume, dir string
	// mark on the volume before this start left its own; nil where there was none.
	mark    *warmfile.InUse
	port    int
	dialer  memcache.Dialer
	command []string
	std     IO
	// lock on the volume, which memcached has, too; nil where there are none.
	lock   *os.File
	record *record
	child  *child
	saving atomic.Bool
	// terminationLog is the kubelet's; "" where there is none. left is what was
	// written to it last.
	terminationLog, left string
	// pending: something is to be replayed.
	pending bool
	// stopReplay ends a replay that a save must not wait for.
	stopReplay context.CancelFunc
}

// runServe is memcached's parent, and usually the container's process 1.
func runServe(ctx context.Context, args []string, std IO) (int, error) {
	fs := newFlags("serve")
	s := supervisor{std: std}
	fs.StringVar(&s.volume, contract.FlagDir, "", "the member's volume; may be left out where there are Secrets to look after, and nothing is to be saved")
	fs.StringVar(&s.dir, contract.FlagMemoryDir, "", "a directory in memory for the warm file, which is then saved to the volume on SIGTERM and loaded from it at the start")
	fs.IntVar(&s.port, contract.FlagPort, 11211, "the port that memcached listens on")
	fs.StringVar(&s.terminationLog, contract.FlagTerminationLog, "", "write here, ahead of a crash, whether the start after it would be cold")
	addConnection(fs, &s.dialer.Connection)
	if err := parse(fs, args, std); err != nil {
		return 0, err
	}
	s.dialer.Unverified = true
	s.command = fs.Args()
	if err := s.check(); err != nil {
		return 0, err
	}
	return s.run(ctx)
}

// check refuses arguments that can't work, and finds memcached.
func (s *supervisor) check() error {
	s.dir = cmp.Or(s.dir, s.volume)
	if s.dir != "" || s.dialer.Connection == (contract.Connection{}) {
		if err := directory(contract.FlagDir, s.volume); err != nil {
			return err
		}
		if err := directory(contract.FlagMemoryDir, s.dir); err != nil {
			return err
		}
	}
	if s.port < 1 || s.port > 65535 {
		return usagef("--%s: %d is not a port", contract.FlagPort, s.port)
	}
	if len(s.command) == 0 {
		return usagef("drainer serve needs memcached's command line behind --")
	}
	for _, a := range s.command[1:] {
		name, _, _ := strings.Cut(a, "=")
		if slices.Contains([]string{"-e", "--memory-file", "-d", "--daemon"}, name) || strings.HasPrefix(a, "-e/") {
			return usagef("drainer serve: memcached's %s is not for the user to set: the supervisor chooses the warm file and stays the parent", name)
		}
	}
	path, err := exec.LookPath(s.command[0])
	if err != nil {
		return usagef("drainer serve: %v", err)
	}
	s.command = append([]string{path}, s.command[1:]...)
	if s.dir == "" {
		return nil
	}
	for _, dir := range []*string{&s.dir, &s.volume} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) path(name string) string { return filepath.Join(s.dir, name) }

func (s *supervisor) logf(format string, args ...any) {
	fmt.Fprintf(s.std.Err, "drainer: "+format+"\n", args...)
}

// run starts memcached and returns, when that has ended, the exit code that
// the container should end with.
func (s *supervisor) run(ctx context.Context) (int, error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	defer signal.Stop(signals)
	if err := s.checkSecrets(); err != nil {
		return contract.ExitFailed, err
	}
	if s.dir == "" {
		return s.runPlain(ctx, signals)
	}
	defer s.unlock()
	if err := s.untilAsked(ctx, signals, s.prepareToBegin); err != nil {
		return contract.ExitFailed, err
	}
	if err := s.begin(); err != nil {
		return contract.ExitFailed, err
	}
	watchCtx, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var behind sync.WaitGroup
	w := newWatch(s)
	behind.Go(func() { w.run(watchCtx) })
	behind.Go(func() { newReload(s, w.address).run(watchCtx) })
	replayCtx, stopReplay := context.WithCancel(watchCtx)
	s.stopReplay = stopReplay
	defer stopReplay()
	behind.Go(func() {
		(&replay{s, w.address}).run(replayCtx)
		select {
		case <-s.record.answered:
			s.announce(watchCtx)
		case <-watchCtx.Done():
		}
	})
	status := s.attend(ctx, signals)
	stopWatching()
	behind.Wait()
	return s.finish(status)
}

// runPlain is for a member without a volume. Nothing is saved: there, the
// supervisor is for what changes in the Secrets.
func (s *supervisor) runPlain(ctx context.Context, signals <-chan os.Signal) (int, error) {
	child, err := startChild(s.command, nil)
	if err != nil {
		return contract.ExitFailed, fmt.Errorf("start memcached: %w", err)
	}
	s.child = child
	reloadCtx, stop := context.WithCancel(ctx)
	var behind sync.WaitGroup
	behind.Go(func() { newReload(s, newWatch(s).address).run(reloadCtx) })
	status := s.attend(ctx, signals)
	stop()
	behind.Wait()
	return codeOf(status), nil
}

// untilAsked runs do, whose context ends when the kubelet wants this process's end.
func (s *supervisor) untilAsked(ctx context.Context, signals <-chan os.Signal, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var listening sync.WaitGroup
	done := make(chan struct{})
	listening.Go(func() {
		for {
			select {
			case sig := <-signals:
				if sig == syscall.SIGTERM || sig == syscall.SIGINT {
					cancel(errors.New("asked to end before memcached was started"))
				}
			case <-done:
				return
			}
		}
	})
	err := do(ctx)
	close(done)
	listening.Wait()
	return errors.Join(err, context.Cause(ctx))
}

// prepareToBegin waits for an earlier pod's processes, and makes ready what
// memcached starts with.
func (s *supervisor) prepareToBegin(ctx context.Context) (err error) {
	if s.lock, err = lockToServe(ctx, s.volume, s.logf); err != nil {
		return err
	}
	s.awaitClock(ctx)
	fresh, note, err := s.prepare(ctx)
	if err != nil {
		return fmt.Errorf("prepare the volume: %w", err)
	}
	if note != "" {
		s.logf("%s", note)
	}
	if s.record, err = newRecord(s.dir, s.command, fresh, note); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

func (s *supervisor) unlock() {
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

// begin starts memcached, when the volume says that its saves grow old.
func (s *supervisor) begin() (err error) {
	if s.saves() {
		if err := s.markInUse(); err != nil {
			return fmt.Errorf("mark the volume as in use: %w", err)
		}
	}
	aside, err := warmfile.Aside(s.volume)
	s.pending = err == nil && replayable(aside)
	if s.child, err = startChild(s.memcached(), s.lock); err != nil {
		return fmt.Errorf("start memcached: %w", err)
	}
	s.foretell()
	return nil
}

// memcached's command line. What is ours goes before the user's arguments, so that
// none of them can take it for its own value.
func (s *supervisor) memcached() []string {
	line := []string{s.command[0], "-e", s.path(contract.WarmFile)}
	if s.pending {
		line = append(line, memcache.ReplayingArgs()...)
	}
	return append(line, s.command[1:]...)
}

// maxClockWait bounds the wait for the clock to pass the last save.
const maxClockWait = 5 * time.Second

// awaitClock waits until the clock is past the second of the last save:
// memcached rejects its own save when no time has passed since.
func (s *supervisor) awaitClock(ctx context.Context) {
	meta, err := warmfile.ReadMeta(s.dir)
	if err != nil {
		meta, err = warmfile.ReadMeta(s.volume)
	}
	if err != nil {
		return
	}
	wait := time.Until(time.Unix(meta.StopTime+1, 0))
	if wait <= 0 {
		return
	}
	if wait > maxClockWait {
		s.logf("the last save is %v in the future by this node's clock", wait.Round(time.Second))
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// attend passes signals on until memcached has ended.
func (s *supervisor) attend(ctx context.Context, signals <-chan os.Signal) syscall.WaitStatus {
	cancelled := ctx.Done()
	for {
		select {
		case status := <-s.child.exited:
			return status
		case <-cancelled:
			cancelled = nil
			s.save()
		case sig := <-signals:
			s.handle(sig.(syscall.Signal))
		}
	}
}

// handle turns the kubelet's SIGTERM into a save. Signals that concern only
// this process, or that every process gets, are not passed on.
func (s *supervisor) handle(sig syscall.Signal) {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT:
		s.save()
	case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGWINCH, syscall.SIGPIPE, syscall.SIGPROF, syscall.SIGCONT,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
	default:
		s.child.signal(sig)
	}
}

// save asks memcached, once, to write its warm file and to end. It looks at
// the request about once a second.
func (s *supervisor) save() {
	if s.saving.Swap(true) {
		return
	}
	if s.dir == "" {
		s.child.signal(syscall.SIGTERM)
		return
	}
	s.logf("saving the cache")
	s.stopReplay()
	s.child.signal(syscall.SIGUSR1)
}

// codeOf memcached's end is what a shell would say.
func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// finish brings the warm file to the disk and tells how memcached ended.
func (s *supervisor) finish(status syscall.WaitStatus) (int, error) {
	code := codeOf(status)
	start := time.Now()
	untouched := s.record.untouched()
	saved, err := s.record.finish()
	switch {
	case err != nil || !s.saves():
	case untouched:
		err = s.unmark()
	default:
		err = s.pack(context.Background())
	}
	switch {
	case saved && err != nil:
		err = fmt.Errorf("bring the save to the disk: %w", err)
		code = max(code, contract.ExitFailed)
	case saved:
		err = s.leave("")
		s.logf("the cache is saved, %d items (on the disk after %v)", s.record.items(), time.Since(start).Round(time.Millisecond))
	case s.saving.Load():
		err = errors.Join(errors.New("memcached ended without saving the cache"), err)
		code = max(code, contract.ExitFailed)
	default:
		s.logf("memcached ended by itself, exit code %d", code)
	}
	return code, err
}
