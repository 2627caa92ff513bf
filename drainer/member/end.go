package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/start"
	"example.com/memcached-operator/drainer/volume"
)

// A member ends when its pod is told to end: SIGTERM (attend, handle) → memcached saves its warm file (save,
// endMemcached) → its save reaches the disk, or is written to the volume (finish). If memcached ends by itself, or is
// killed because it hangs (hang.go), only the last step remains.

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
		case serial := <-s.empties:
			s.beginEmpty(serial)
		case <-s.quiet:
			s.quiet = nil
			s.endMemcached(syscall.SIGUSR1)
		case sig := <-signals:
			s.handle(sig.(syscall.Signal))
		}
	}
}

// handle turns the kubelet's SIGTERM into a save. handle does not pass on signals that only concern this
// process, or that every process gets.
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
		if s.emptying > 0 && s.asked.IsZero() {
			s.asked = time.Now() // the next start is empty, too
		}
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

// dropSpare removes the spare file, to make room for the writes of the end.
func (s *supervisor) dropSpare() {
	if s.Dir() == "" || s.Saves() {
		return
	}
	if err := volume.DropSpare(s.Volume); err != nil {
		s.std.Logf("%v", err)
	}
}

// finish brings the warm file to the disk and returns how memcached ended.
func (s *supervisor) finish(status syscall.WaitStatus) (int, error) {
	code := codeOf(status)
	began := time.Now()
	s.dropSpare()
	saved, err := s.keep()
	switch {
	case saved && err != nil:
		err = fmt.Errorf("bring the save to the disk: %w", err)
		code = max(code, contract.ExitFailed)
	case saved:
		err = s.termination.write("")
		s.std.Logf("the cache is saved, %d items (on the disk after %v)", s.manifest.items(), time.Since(began).Round(time.Millisecond))
	case s.saving.Load():
		err = errors.Join(errors.New("memcached ended without saving the cache"), err)
		code = max(code, contract.ExitFailed)
	default:
		s.std.Logf("memcached ended by itself, exit code %d", code)
	}
	return code, err
}

// keep brings memcached's file to the disk, and tells whether memcached had saved. If nothing was stored, the
// volume is restored to its earlier state: the note that it is in use is removed, and so is the empty file,
// which would look like a used one after the node's next boot.
func (s *supervisor) keep() (saved bool, err error) {
	untouched, err := s.manifest.untouched()
	if err != nil {
		return false, fmt.Errorf("look for items in the warm file: %w", err)
	}
	saved, err = s.manifest.finish(s.std.Logf)
	if saved && err == nil && !s.Saves() {
		if err := s.manifest.count(); err != nil {
			s.logUncounted(err)
		}
	}
	switch {
	case err != nil:
	case untouched && s.Saves():
		err = s.putBack()
	case untouched && s.manifest.Fresh:
		err = volume.DropWarmFile(s.Volume)
	case s.Saves():
		err = s.saveToVolume(saved)
	}
	if err != nil && s.Saves() && !untouched {
		// A drain reports the error, if the disk takes at least that note.
		_ = volume.NoteUnsaved(s.Volume, err)
	}
	return saved, err
}

// putBack is for a memcached in which no client can have stored anything. putBack restores the earlier note,
// and saves a file in memory that has no save, because the file is lost with the pod.
func (s *supervisor) putBack() error {
	if err := volume.PutNoteBack(s.Volume, s.noteBefore); err != nil {
		return err
	}
	return s.saveMemory()
}

// saveMemory saves the file that an earlier memcached of this pod has left in memory, unless a save has all
// of it.
func (s *supervisor) saveMemory() error {
	saved, err := start.SaveMemory(s.Member, s.saveOptions())
	if err != nil {
		return fmt.Errorf("save the file that an earlier memcached of this pod left in memory: %w", err)
	}
	if saved {
		s.std.Logf("the file that an earlier memcached of this pod left in memory is saved")
	}
	return nil
}

func (s *supervisor) logUncounted(why error) {
	s.std.Logf("the items are saved, but can't be counted: %s", contract.OneLine(why))
}

// saveToVolume writes the save, which was in memory until now, to the volume. saved tells whether memcached
// had ended in good order.
func (s *supervisor) saveToVolume(saved bool) error {
	written, err := volume.Save(context.Background(), s.Memory, s.Volume, s.saveOptions())
	if err != nil || written == nil {
		return err
	}
	s.std.Logf("the save is on the volume: %d MiB, written at %d MiB/s", volume.Mebibytes(written.Bytes), written.Rate()>>20)
	switch {
	case written.Counted:
		s.manifest.counted(written.Items)
	case saved:
		s.logUncounted(errors.New("a page of the file doesn't show its number of items"))
	}
	return nil
}

func (s *supervisor) saveOptions() volume.SaveOptions {
	o := volume.SaveOptions{Logf: s.std.Logf, Progress: s.progress()}
	if !s.asked.IsZero() {
		o.Until = s.asked.Add(s.GracePeriod)
	}
	return o
}

// progress returns a function that reports how far a save is. The function writes to the kubelet's file at each
// call, in case the member is killed, and to the log now and then.
func (s *supervisor) progress() func(done, all int64) {
	began := time.Now()
	logs := contract.LogWork(contract.WorkSaving, s.std.Logf)
	return func(done, all int64) {
		rate := int64(float64(done) / time.Since(began).Seconds())
		// An error here doesn't matter: only the save counts.
		_ = s.termination.saving(contract.Saving{SavedBytes: done, SaveBytes: all, BytesPerSecond: rate})
		logs(done, all)
	}
}

// codeOf returns the exit code that a shell would report for memcached's end.
func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
