package oracle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/linux"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/warmfile"
)

const socket = "socket"

// arguments returns the arguments with which memcached resumes from a file: those in .meta, each in the form
// in which it is compared. Listing needs the crawler; the maintainer, which would occupy the crawler, is off. So is the
// mover of slab pages: it gives items that it moves another time of their last access, and may evict some.
//
// Source: memcached's memcached.c, _mc_meta_load_cb.
func arguments(image *warmfile.Image) []string { return argumentsIn(image, 1) }

// argumentsIn is arguments with slab_chunk_max in units of so many bytes: some versions expect bytes and
// others kilobytes. Half a page, which is every version's default, is left out.
func argumentsIn(image *warmfile.Image, unit int) []string {
	args := []string{
		"-e", contract.WarmFile, "-s", socket, "-U", "0", "-t", "2",
		"-m", strconv.FormatInt(image.MaxBytes>>20, 10),
		"-n", strconv.Itoa(image.ChunkSize),
		"-I", strconv.Itoa(image.ItemSizeMax),
	}
	options := []string{"no_lru_maintainer", "lru_crawler", "slab_automove=0"}
	if image.SlabChunkMax != image.SlabPageSize/2 {
		options = append(options, "slab_chunk_max="+strconv.Itoa(image.SlabChunkMax/unit))
	}
	if strings.Contains(image.SlabConfig, "-") {
		options = append(options, "slab_sizes="+image.SlabConfig)
	} else {
		args = append(args, "-f", image.SlabConfig)
	}
	if !image.SlabReassign {
		options = append(options, "no_slab_reassign")
	}
	if !image.UseCAS {
		args = append(args, "-C")
	}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	return append(args, "-o", strings.Join(options, ","))
}

// server is a private memcached, on a socket in its working directory.
type server struct {
	work   *os.File
	pid    int
	stderr tail
	// ended is closed when the process has ended, with state.
	ended chan struct{}
	state *os.ProcessState
}

// start runs memcached in work. memcached is killed when this process dies, and by stop.
func start(ctx context.Context, program string, args []string, work string) (*server, error) {
	dir, err := os.Open(work)
	if err != nil {
		return nil, err
	}
	s := &server{work: dir, ended: make(chan struct{})}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stderr = work, &s.stderr
	cmd.SysProcAttr = linux.DiesWithParent()
	started := make(chan error)
	go func() {
		// The death signal depends on the thread that starts the child. The thread therefore stays with the child,
		// and does not end afterwards, because other children may have been started from it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait()
		s.state = cmd.ProcessState
		close(s.ended)
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("start memcached: %w", err), dir.Close())
	}
	s.pid = cmd.Process.Pid
	if err := s.awaitAnswer(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// stop ends memcached at once, because its copy is not needed any more.
func (s *server) stop() {
	_ = syscall.Kill(s.pid, syscall.SIGKILL)
	<-s.ended
	s.work.Close()
}

// dial connects to the socket, by a short name even if the directory's name is long.
func (s *server) dial(ctx context.Context) (*memcache.Conn, error) {
	conn, err := memcache.Dialer{AnyServer: true}.Dial(ctx, fmt.Sprintf("/proc/self/fd/%d/%s", s.work.Fd(), socket))
	if err != nil {
		return nil, fmt.Errorf("ask the private memcached: %w", err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return conn, nil
}

// awaitAnswer waits until memcached has resumed; with a billion items that takes minutes.
func (s *server) awaitAnswer(ctx context.Context) error {
	const pause = 10 * time.Millisecond
	for {
		conn, err := s.dial(ctx)
		if err == nil {
			err = conn.Ping()
			conn.Close()
		}
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return warmfile.Refuse(reasonRejected, "memcached, started on a copy, ended: %v: %s", s.state, s.stderr.String())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// accepted returns the number of items that memcached counts, or an error if it did not resume from the copy:
// then it has started empty, with a time of its own.
func (s *server) accepted(ctx context.Context, image *warmfile.Image) (int64, error) {
	stats, err := s.stats(ctx)
	if err != nil {
		return 0, err
	}
	items, err := strconv.ParseInt(stats["curr_items"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the private memcached says curr_items=%q", stats["curr_items"])
	}
	now, _ := strconv.ParseInt(stats["time"], 10, 64)
	uptime, _ := strconv.ParseInt(stats["uptime"], 10, 64)
	const interval = 60 // ITEM_UPDATE_INTERVAL, see warmfile.Image.Ask
	switch started := now - uptime - interval; {
	case started != image.ProcessStarted:
		return 0, warmfile.Refuse(reasonRejected, "memcached did not take up the copy: it says that it began at %d, .meta says %d: %s",
			started, image.ProcessStarted, s.stderr.String())
	case image.ItemsExact && items != image.Items:
		return 0, warmfile.Refuse(warmfile.ReasonCountMismatch, "%d items, as were counted after the save, memcached took up %d", image.Items, items)
	case !image.ItemsExact && items == 0:
		return 0, warmfile.Refuse(reasonRejected, "memcached took up no item, and no count says that there were none: %s", s.stderr.String())
	}
	return items, nil
}

func (s *server) stats(ctx context.Context) (map[string]string, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Stats("")
}

// tail keeps the end of the output, for messages.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 512
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-most):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(strings.TrimSpace(string(t.b)), "\n", "; ")
}
