// Command redisdrain drains the volume of a Redis server that has left a StatefulSet of independent servers,
// among which the clients shard their keys. Command redisdrain starts a redis-server on the volume, which
// moves each key to the server that clients ask for it now (MIGRATE). A key that is there already is not
// overwritten. The command may be killed at any time, and run again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/test/statefulsets/drainer"
	"example.com/memcached-operator/test/statefulsets/resp"
)

// The system kills the redis-server when the thread that started it ends, so it has to be this one.
func init() { runtime.LockOSThread() }

// port of the servers that stay.
const port = 6379

type drain struct {
	dir string
	// members are the servers that stay, in the order by which clients shard.
	members []string
	// unreachable is how long a server that does not answer is waited for.
	unreachable time.Duration
	progress    drainer.Progress
	count       drainer.Count
}

func main() {
	d := drain{progress: drainer.Progress{To: os.Stdout}}
	flag.StringVar(&d.dir, "dir", "/data", "where the volume is mounted")
	flag.DurationVar(&d.unreachable, "unreachable", 2*time.Minute, "how long a server that does not answer is waited for")
	message := flag.String("message", "/dev/termination-log", "where the termination message goes")
	members := flag.String("members", "", "HOST:PORT of each server that stays, with commas; by default those of the environment")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := d.run(ctx, *members)
	stop()
	os.Exit(drainer.Terminate(*message, d.count, err))
}

func (d *drain) run(ctx context.Context, members string) error {
	if d.members = strings.Split(members, ","); members == "" {
		of, err := drainer.FromEnvironment(os.Getenv)
		if err != nil {
			return err
		}
		d.members = of.Survivors(port)
	}
	lock, err := drainer.Lock(filepath.Join(d.dir, ".drain.lock"), time.Minute)
	if err != nil {
		return err
	}
	defer lock.Close()
	// The server has the lock, too, because it uses the volume.
	socket := filepath.Join(d.dir, ".drain.sock")
	server := exec.CommandContext(ctx, "redis-server", "--dir", d.dir, "--port", "0", "--unixsocket", socket,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no")
	server.ExtraFiles = []*os.File{lock}
	server.Stdout, server.Stderr = os.Stderr, os.Stderr
	server.SysProcAttr = linux.DiesWithParent()
	if err := server.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	source, err := connect(socket, ended)
	if err == nil {
		err = d.move(ctx, source)
		source.Close()
	}
	// Each key that was moved is removed from the volume already: appendfsync always.
	_ = server.Process.Kill()
	return err
}

// connect waits until the server has read the volume.
func connect(socket string, ended <-chan error) (*resp.Conn, error) {
	const callTakes = 5 * time.Minute // MIGRATE has its own, shorter one
	for {
		source, err := resp.Dial("unix", socket, time.Minute)
		if err == nil {
			source.Timeout = callTakes
			if _, err = source.Call("PING"); err == nil {
				return source, nil
			}
			source.Close()
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("redis-server has ended, it can't read the volume: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// move moves each key to its owner.
func (d *drain) move(ctx context.Context, source *resp.Conn) error {
	keys, err := source.Keys()
	if err != nil {
		return err
	}
	d.count.Found = len(keys)
	d.progress.Print(d.count)
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		owner := d.members[resp.Owner(key, len(d.members))]
		var moved bool
		err := drainer.Retry(ctx, d.unreachable, func() (err error) {
			moved, err = moveKey(source, key, owner)
			return err
		})
		switch {
		case err != nil:
			return fmt.Errorf("move key %q to %s: %w", key, owner, err)
		case moved:
			d.count.Moved++
		default:
			d.count.Skipped++
		}
		d.progress.Print(d.count)
	}
	return nil
}

// moveKey moves a key, with its time to live. moved is false if the owner has the key, which may be
// newer, or if the key has expired. After a failure the key may be at both places: then the next
// attempt finds it at the owner.
func moveKey(source *resp.Conn, key, owner string) (moved bool, err error) {
	host, port, err := net.SplitHostPort(owner)
	if err != nil {
		return false, err
	}
	addresses, err := net.DefaultResolver.LookupHost(context.Background(), host)
	if err != nil {
		return false, err
	}
	const timeout = 10 * time.Second
	answer, err := source.Call("MIGRATE", addresses[0], port, key, "0", strconv.FormatInt(timeout.Milliseconds(), 10))
	if refused := resp.Error(""); errors.As(err, &refused) && strings.Contains(string(refused), "BUSYKEY") {
		return false, nil
	}
	return answer == "OK", err // otherwise NOKEY
}
