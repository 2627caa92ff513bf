// Package member supervises one memcached from start to save: it prepares the start, watches the process and
// the Secrets, replays generations, passes signals on, and saves at the end.
package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/start"
	"example.com/memcached-operator/drainer/volume"
)

// Config is the configuration of a member.
type Config struct {
	// Member.Volume may be empty if there are Secrets to watch or metrics to serve, and nothing is to be saved.
	start.Member
	// Port is where memcached listens.
	Port int
	// ExportPort is where items are streamed to movers; 0 if nowhere.
	ExportPort int
	// ProbePort is where the kubelet's probe is answered; 0 if nowhere.
	ProbePort int
	// MetricsPort is where memcached's metrics are served; 0 if nowhere.
	MetricsPort int
	// Dialer connects to memcached.
	Dialer memcache.Dialer
	// TerminationLog is the kubelet's file; "" if there is none.
	TerminationLog string
	// HangAfter is how long memcached may hang.
	HangAfter time.Duration
	// GracePeriod is how long after SIGTERM the kubelet kills the member.
	GracePeriod time.Duration
	// ListFile has the clients' list, and Discovery is the address where clients ask for it; both may be
	// empty.
	ListFile, Discovery string
	// StepFile tells the member to start empty; empty if nothing does.
	StepFile string
}

// supervisor runs one memcached.
type supervisor struct {
	Config
	std commandline.IO
	// lock is the lock on the volume, which memcached inherits; nil if there is no volume.
	lock     *os.File
	manifest *manifest
	// noteBefore is the note that was on the volume before this start wrote its own; nil if there was none.
	noteBefore *volume.InUse
	child      *child
	saving     atomic.Bool
	// version is memcached's, for clients of discovery; empty if memcached doesn't say.
	version string
	// asked is when memcached was told to end.
	asked       time.Time
	termination termination
	pulse       pulse
	silence     silence
	// unstarted means that memcached never began to serve and was killed.
	unstarted atomic.Bool
	// unfit says why a memcached that runs would never restart from its file.
	unfit atomic.Pointer[error]
	// pending means that something is to be replayed.
	pending bool
	// startedEmpty is the serial for which this member has started empty, 0 for none. empties brings the next one,
	// and emptying is that for which memcached was ended.
	startedEmpty, emptying int64
	empties                chan int64
	// stopEnding ends the watch over a memcached that was told to end.
	stopEnding context.CancelFunc
	// stopReplay ends a replay that a save must not wait for. replayed is closed when the replay has ended,
	// and quiet when memcached may be told to end.
	stopReplay      context.CancelFunc
	replayed, quiet chan struct{}
}

// Serve runs a member, and returns the exit code for the container.
func Serve(ctx context.Context, c Config, std commandline.IO) (int, error) {
	s := supervisor{Config: c, std: std, termination: termination{path: c.TerminationLog}, pulse: pulse{questions: make(chan question)}, empties: make(chan int64)}
	if err := s.check(); err != nil {
		return 0, err
	}
	code, err := s.run(ctx)
	if err == nil && s.emptying > 0 && s.asked.IsZero() {
		err = startAnew()
	}
	return code, errors.Join(err, s.termination.trouble(err))
}

func (s *supervisor) path(name string) string { return filepath.Join(s.Dir(), name) }

// run starts memcached and returns, when memcached has ended, the exit code for the container.
func (s *supervisor) run(ctx context.Context) (int, error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	defer signal.Stop(signals)
	if err := s.checkSecrets(); err != nil {
		return contract.ExitFailed, err
	}
	if s.Dir() == "" {
		return s.runPlain(ctx, signals)
	}
	defer s.unlock()
	if err := s.untilTold(ctx, signals, s.prepareToBegin); err != nil {
		return contract.ExitFailed, errors.Join(err, s.saveUnstarted())
	}
	if err := s.begin(); err != nil {
		return contract.ExitFailed, err
	}
	watchCtx, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var behind sync.WaitGroup
	w := newWatch(s)
	behind.Go(func() { w.run(watchCtx) })
	behind.Go(func() { s.watchForHang(watchCtx, w.address) })
	behind.Go(func() { s.answerProbes(watchCtx) })
	behind.Go(func() { s.serveMetrics(watchCtx) })
	behind.Go(func() { s.watchStart(watchCtx) })
	behind.Go(func() { s.watchStep(watchCtx) })
	behind.Go(func() { newReload(s, w.address).run(watchCtx) })
	if s.Discovery != "" {
		behind.Go(func() { (&list{s: s, address: w.address}).run(watchCtx) })
	}
	behind.Go(func() { s.export(watchCtx, w.address) })
	replayCtx, stopReplay := context.WithCancel(watchCtx)
	s.stopReplay, s.replayed = stopReplay, make(chan struct{})
	defer stopReplay()
	behind.Go(func() {
		(&replay{s: s, address: w.address, life: watchCtx}).run(replayCtx)
		close(s.replayed)
		select {
		case <-s.manifest.answered:
			s.announce(watchCtx)
		case <-watchCtx.Done():
		}
	})
	status := s.attend(ctx, signals)
	stopWatching()
	behind.Wait()
	if s.emptying > 0 {
		return contract.ExitOK, s.finishEmpty()
	}
	code, err := s.finish(status)
	if why := s.unfit.Load(); why != nil {
		return contract.ExitUsage, errors.Join(*why, err)
	}
	if s.unstarted.Load() {
		s.warnOfNextStart(ctx)
	}
	return code, err
}

// runPlain is for a member without a volume. Nothing is saved: the supervisor only watches the Secrets and serves
// metrics.
func (s *supervisor) runPlain(ctx context.Context, signals <-chan os.Signal) (int, error) {
	if err := s.untilTold(ctx, signals, s.checkVersion); err != nil {
		return contract.ExitFailed, err
	}
	child, err := startChild(s.Command, nil)
	if err != nil {
		return contract.ExitFailed, fmt.Errorf("start memcached: %w", err)
	}
	s.child = child
	reloadCtx, stop := context.WithCancel(ctx)
	var behind sync.WaitGroup
	behind.Go(func() { newReload(s, s.address()).run(reloadCtx) })
	behind.Go(func() { s.watchForHang(reloadCtx, s.address()) })
	behind.Go(func() { s.answerProbes(reloadCtx) })
	behind.Go(func() { s.serveMetrics(reloadCtx) })
	status := s.attend(ctx, signals)
	stop()
	behind.Wait()
	return codeOf(status), nil
}

// saveUnstarted is for a supervisor that the kubelet told to end before memcached was started. saveUnstarted
// saves what an earlier memcached of this pod has left in memory, which is lost with the pod; without the
// lock, nothing is saved, because an earlier process may still use the volume.
func (s *supervisor) saveUnstarted() error {
	if s.asked.IsZero() || s.lock == nil || !s.Saves() {
		return nil
	}
	if err := s.saveMemory(); err != nil {
		return err
	}
	return s.termination.write("")
}

// untilTold runs do. Its context ends when the kubelet tells this process to end.
func (s *supervisor) untilTold(ctx context.Context, signals <-chan os.Signal, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var listening sync.WaitGroup
	done := make(chan struct{})
	listening.Go(func() {
		for {
			select {
			case sig := <-signals:
				if (sig == syscall.SIGTERM || sig == syscall.SIGINT) && s.asked.IsZero() {
					s.asked = time.Now()
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

// prepareToBegin waits for an earlier pod's processes, and prepares memcached's start.
func (s *supervisor) prepareToBegin(ctx context.Context) (err error) {
	if s.lock, err = volume.LockToServe(ctx, s.Volume, s.std.Logf); err != nil {
		return err
	}
	if err = s.checkVersion(ctx); err != nil {
		return err
	}
	s.startedEmpty = volume.StartedEmpty(s.Volume)
	first, err := start.Prepare(ctx, s.Member, askBuild, volume.SaveOptions{Logf: s.std.Logf, Progress: s.progress()})
	if err != nil {
		return err
	}
	if err := s.reserve(ctx); err != nil {
		return err
	}
	s.manifest = keepManifest(s.Dir(), first)
	if err := s.manifest.hold(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("open the warm file: %w", err)
	}
	return nil
}

// reserve allocates room for a warm file on the volume, but not for a memcached that changes its user, which couldn't
// open a file that this process has made. For a save, which may be much smaller, reserve only looks for room.
func (s *supervisor) reserve(ctx context.Context) error {
	options := commandline.Parse(s.Command[1:])
	if s.Saves() {
		free, _, err := volume.Room(s.Volume, options.MemoryLimit(), true)
		switch lacking := options.MemoryLimit() - free; {
		case err != nil: // the save will say so; what is served until then needs no room
			s.std.Logf("how much room there is for a save is not known: %v", err)
		case lacking > 0:
			s.std.Logf("a full cache can't be saved: %v", &volume.RoomError{Need: options.MemoryLimit(), Lacking: lacking})
		}
		return nil
	}
	if user, other := options.Last(commandline.User); other && user != "root" && os.Geteuid() == 0 {
		return nil
	}
	return volume.ReserveWarmFile(ctx, s.Volume, options.MemoryLimit(), s.std.Logf)
}

func (s *supervisor) unlock() {
	if s.manifest != nil {
		s.manifest.close()
	}
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

// begin starts memcached, after the note on the volume says that the volume's saves are outdated from now on.
func (s *supervisor) begin() (err error) {
	if s.Saves() {
		if s.noteBefore, err = volume.NoteInUse(s.Volume); err != nil {
			return fmt.Errorf("note that the volume is in use: %w", err)
		}
	}
	kept, err := volume.Kept(s.Volume)
	s.pending = err == nil && volume.Replayable(kept)
	if s.pending {
		err = volume.MarksRefused(kept)
	}
	if err != nil {
		err = fmt.Errorf("look for generations to replay: %w", err)
		if s.Saves() {
			err = errors.Join(err, s.putBack())
		}
		return err
	}
	if s.child, err = startChild(s.memcached(), s.lock); err != nil {
		err = fmt.Errorf("start memcached: %w", err)
		if s.Saves() {
			err = errors.Join(err, s.putBack())
		}
		return err
	}
	s.warn()
	return nil
}

// memcached returns memcached's command line. The supervisor's arguments come before the user's, so that no
// flag of the user can take one of them as its value.
func (s *supervisor) memcached() []string {
	line := []string{s.Command[0], "-e", s.path(contract.WarmFile)}
	if s.pending {
		line = append(line, memcache.ReplayingArgs()...)
	}
	return append(line, s.Command[1:]...)
}
