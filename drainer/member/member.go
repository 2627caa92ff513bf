// Package member supervises one memcached from start to save: it prepares the start, watches the process and
// the Secrets, replays generations, passes signals on, and saves at the end.
package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/args"
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
}

// supervisor runs one memcached.
type supervisor struct {
	Config
	std args.IO
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
	// unstarted means that memcached never began to serve and was killed.
	unstarted atomic.Bool
	// unfit says why a memcached that runs would never restart from its file.
	unfit atomic.Pointer[error]
	// pending means that something is to be replayed.
	pending bool
	// stopEnding ends the watch over a memcached that was told to end.
	stopEnding context.CancelFunc
	// stopReplay ends a replay that a save must not wait for. replayed is closed when the replay has ended,
	// and quiet when memcached may be told to end.
	stopReplay      context.CancelFunc
	replayed, quiet chan struct{}
}

// Serve runs a member, and returns the exit code for the container.
func Serve(ctx context.Context, c Config, std args.IO) (int, error) {
	s := supervisor{Config: c, std: std, termination: termination{path: c.TerminationLog}, pulse: pulse{questions: make(chan question)}}
	if err := s.check(); err != nil {
		return 0, err
	}
	code, err := s.run(ctx)
	return code, errors.Join(err, s.termination.trouble(err))
}

// check refuses arguments that can't work, and finds memcached.
func (s *supervisor) check() error {
	if s.Dir() != "" || s.Dialer.Connection == (contract.Connection{}) && s.MetricsPort == 0 {
		if err := args.Directory(contract.FlagDir, s.Volume); err != nil {
			return err
		}
		if err := args.Directory(contract.FlagMemoryDir, s.Dir()); err != nil {
			return err
		}
	}
	if s.HangAfter < time.Second {
		return args.Usagef("--%s: at least 1s is needed", contract.FlagHangAfter)
	}
	if s.GracePeriod < time.Second {
		return args.Usagef("--%s: at least 1s is needed", contract.FlagGracePeriod)
	}
	if s.Port < 1 || s.Port > 65535 {
		return args.Usagef("--%s: %d is not a port", contract.FlagPort, s.Port)
	}
	if err := s.checkDiscovery(); err != nil {
		return err
	}
	if err := s.checkExport(); err != nil {
		return err
	}
	if err := s.checkHTTP(); err != nil {
		return err
	}
	if len(s.Command) == 0 {
		return args.Usagef("drainer supervise needs memcached's command line after --")
	}
	if err := s.checkOptions(); err != nil {
		return err
	}
	path, err := exec.LookPath(s.Command[0])
	if err != nil {
		return args.Usagef("drainer supervise: %v", err)
	}
	s.Command = append([]string{path}, s.Command[1:]...)
	for _, dir := range []*string{&s.Memory, &s.Volume} {
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	return nil
}

// checkOptions refuses options of memcached that can't work.
func (s *supervisor) checkOptions() error {
	options := commandline.Parse(s.Command[1:])
	if slices.ContainsFunc(options, commandline.Option.IsSupervisors) {
		return args.Usagef("drainer supervise: memcached's -e (--memory-file) and -d (--daemon) are not for the user to set: the supervisor chooses the warm file and stays the parent")
	}
	if commandline.NeverStarts(s.Command[1:]) {
		return args.Usagef("drainer supervise: memcached never starts with a value among %q: see extraArgs", s.Command[1:])
	}
	if s.Dir() == "" {
		return nil
	}
	if err := unfit(options.ShortPages(), options.External()); err != nil {
		return args.Usagef("drainer supervise: %v", err)
	}
	return nil
}

// unfitError says why memcached would never restart from its own file.
type unfitError string

func (e unfitError) Error() string { return string(e) }

// unfit returns an unfitError, or nil. shortPages means that slab pages have individual lengths, external that
// values are in extstore.
func unfit(shortPages, external bool) error {
	switch {
	case shortPages:
		return unfitError("memcached never restarts from the file of one that moves no slab pages and has slots of a whole page: " +
			"leave out no_modern, no_slab_reassign or no_chunked_items of -o, or set slab_chunk_max to less than 1 MiB")
	case external:
		return unfitError("memcached never restarts from its file with extstore: leave out ext_path of -o")
	}
	return nil
}

func (s *supervisor) checkExport() error {
	if s.ExportPort < 0 || s.ExportPort > 65535 || s.ExportPort == s.Port {
		return args.Usagef("--%s: %d is not a port, or memcached's", contract.FlagExportPort, s.ExportPort)
	}
	if _, port, err := net.SplitHostPort(s.Discovery); err == nil && s.ExportPort != 0 && port == strconv.Itoa(s.ExportPort) {
		return args.Usagef("--%s: %d is the port of --%s", contract.FlagExportPort, s.ExportPort, contract.FlagDiscovery)
	}
	return nil
}

// checkHTTP checks the ports of the probe and of the metrics.
func (s *supervisor) checkHTTP() error {
	taken := []int{s.Port, s.ExportPort}
	if _, port, err := net.SplitHostPort(s.Discovery); err == nil {
		n, _ := strconv.Atoi(port) // it may be a name
		taken = append(taken, n)
	}
	for _, p := range []struct {
		flag string
		port int
	}{{contract.FlagProbePort, s.ProbePort}, {contract.FlagMetricsPort, s.MetricsPort}} {
		if p.port < 0 || p.port > 65535 || p.port != 0 && slices.Contains(taken, p.port) {
			return args.Usagef("--%s: %d is not a port, or it is used already", p.flag, p.port)
		}
		taken = append(taken, p.port)
	}
	return nil
}

func (s *supervisor) checkDiscovery() error {
	if s.Discovery == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(s.Discovery); err != nil || port == strconv.Itoa(s.Port) {
		return args.Usagef("--%s: %s is not HOST:PORT with a port that memcached doesn't have", contract.FlagDiscovery, s.Discovery)
	}
	if s.ListFile == "" || s.Dir() == "" {
		return args.Usagef("--%s needs --%s and --%s", contract.FlagDiscovery, contract.FlagList, contract.FlagDir)
	}
	return nil
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

// saveUnstarted is for a supervisor that the kubelet told to end before memcached was started. It saves what
// an earlier memcached of this pod has left in memory, which is lost with the pod. Without the lock it does
// nothing, because an earlier process may still use the volume.
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

// reserve allocates room for a warm file on the volume. It does not for a memcached that changes its user,
// which couldn't open a file that this process has made. For a save, which may be much smaller, it only looks for room.
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

// attend passes signals on until memcached has ended.
func (s *supervisor) attend(ctx context.Context, signals <-chan os.Signal) syscall.WaitStatus {
	cancelled := ctx.Done()
	for {
		select {
		case status := <-s.child.exited:
			if s.stopEnding != nil {
				s.stopEnding()
			}
			return status
		case <-cancelled:
			cancelled = nil
			s.save()
		case <-s.quiet:
			s.quiet = nil
			s.endMemcached(syscall.SIGUSR1)
		case sig := <-signals:
			s.handle(sig.(syscall.Signal))
		}
	}
}

// handle turns the kubelet's SIGTERM into a save. It does not pass on signals that only concern this process,
// or that every process gets.
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

// save tells memcached, once, to write its warm file and to end. memcached looks for the request when its
// clock ticks, once a second, or when it has accepted a connection. The supervisor does not connect to make
// memcached look sooner: memcached's clock would then lose half a second in each warm restart, and all items
// would live that much longer.
func (s *supervisor) save() {
	if s.saving.Swap(true) {
		return
	}
	s.asked = time.Now()
	if s.Dir() == "" {
		s.endMemcached(syscall.SIGTERM)
		return
	}
	s.std.Logf("saving the cache")
	s.stopReplay()
	s.quiet = make(chan struct{})
	go func(quiet chan<- struct{}) {
		defer close(quiet)
		select {
		case <-s.replayed:
		case <-time.After(s.endWithin() / 2):
			s.std.Logf("memcached has not answered for all replayed items yet: some may be lost")
		}
	}(s.quiet)
}

// endMemcached tells memcached to end. All that a replay has sent has an outcome by then.
func (s *supervisor) endMemcached(sig syscall.Signal) {
	s.dropSpare()
	ctx, stop := context.WithCancel(context.Background())
	s.stopEnding = stop
	go s.endHung(ctx)
	s.child.signal(sig)
}

// dropSpare removes the spare file, to make room for what is written at the end.
func (s *supervisor) dropSpare() {
	if s.Dir() == "" || s.Saves() {
		return
	}
	if err := volume.DropSpare(s.Volume); err != nil {
		s.std.Logf("%v", err)
	}
}

// codeOf returns the exit code that a shell would report for memcached's end.
func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
