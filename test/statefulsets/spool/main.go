// Command spool is a spool of files: a member takes files over HTTP, and a worker beside it consumes
// them. Clients send each file to a member of their choice, and again if they got no answer.
//
//	spool serve --dir=/data --listen=:8080 --every=1s   a member; its worker consumes a file each second
//	spool drain --dir=/data                             gives the files of a departed member to others
//
// A file that a member has, or has consumed, is not taken a second time. So the drainer may be killed
// at any time, and run again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"example.com/memcached-operator/test/statefulsets/drainer"
)

// port of the members.
const port = 8080

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	command, args := "", os.Args[1:]
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("spool "+command, flag.ExitOnError)
	dir := flags.String("dir", "/data", "where the volume is mounted")
	switch command {
	case "serve":
		listen := flags.String("listen", fmt.Sprintf(":%d", port), "the address to listen at")
		every := flags.Duration("every", 0, "how often the worker consumes a file; 0 for never")
		_ = flags.Parse(args) // it ends the process
		err := serve(ctx, *dir, *listen, *every)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "drain":
		message := flags.String("message", "/dev/termination-log", "where the termination message goes")
		unreachable := flags.Duration("unreachable", 2*time.Minute, "how long a member that does not answer is waited for")
		members := flags.String("members", "", "HOST:PORT of each member that stays, with commas; by default those of the environment")
		_ = flags.Parse(args)
		d := drain{dir: *dir, unreachable: *unreachable, progress: drainer.Progress{To: os.Stdout}}
		err := d.run(ctx, *members)
		stop()
		os.Exit(drainer.Terminate(*message, d.count, err))
	default:
		fmt.Fprintln(os.Stderr, "usage: spool serve|drain …")
		os.Exit(2)
	}
}

func serve(ctx context.Context, dir, listen string, every time.Duration) error {
	s, err := open(dir)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: s, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if every > 0 {
		go s.work(ctx, every)
	}
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// survivors are those of the flag, or of the environment.
func survivors(members string) ([]string, error) {
	if members != "" {
		return strings.Split(members, ","), nil
	}
	of, err := drainer.FromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	return of.Survivors(port), nil
}
