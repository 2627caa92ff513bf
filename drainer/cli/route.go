package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/drainer/listen"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/router"
)

// routeFlags are the arguments of "drainer route".
type routeFlags struct {
	routing   routingFlags
	config    router.Config
	listen    string
	admin     string
	maxMemory int
	ring      ringFile
	// clientTLS and clientLogins are the files for clients' connections.
	clientTLS    string
	clientVerify bool
	clientLogins string
	onMiss       onMissFlags
}

func (f *routeFlags) add(fs *flag.FlagSet) {
	f.routing.add(fs)
	c := &f.config
	fs.StringVar(&f.listen, contract.FlagListen, ":11211", "the address where applications connect, HOST:PORT")
	fs.StringVar(&f.admin, contract.FlagAdmin, ":11212", "the address of /ready, /metrics and /ring, HOST:PORT; empty for none")
	fs.StringVar(&f.ring.path, contract.FlagRingFile, "", "the file with the rings and the state of a ring change, in JSON, instead of --client and --server; it is read again when it changes")
	fs.IntVar(&c.Loops, "threads", runtime.GOMAXPROCS(0), "threads that serve clients; each has its own connections to the members")
	fs.IntVar(&c.MaxConnections, "max-connections", router.DefaultMaxConnections, "connections of clients at most; a further one gets an error, and is closed")
	fs.IntVar(&c.MaxItem, contract.FlagMaxItemSize, router.DefaultMaxItem, "a value's size at most, in bytes: as large as the members' own bound (memcached's -I), whose default it has")
	fs.IntVar(&f.maxMemory, contract.FlagMaxMemory, router.DefaultMaxMemory, "what is kept of requests that are not complete, or that members have not taken, and of answers that clients have not taken, in bytes; a request or answer of more than 2 KiB beyond it is an error")
	fs.DurationVar(&c.MemberTimeout, "member-timeout", router.DefaultMemberTimeout, "a member that is silent for so long, and takes less than 32 KiB a second of a large request, gets another connection, and its requests an error")
	fs.DurationVar(&c.ConnectTimeout, "connect-timeout", router.DefaultConnectTimeout, "how long a connection to a member may take")
	fs.DurationVar(&c.IdleTimeout, "idle-timeout", 0, "close the connection of a client that asks nothing and takes nothing for so long; 0 never")
	fs.DurationVar(&c.RequestTimeout, "request-timeout", router.DefaultRequestTimeout, "how long a request of more than 4 KiB may take to arrive, with a second more for each 32 KiB; while half of --max-memory is taken, also a smaller one, and how long a client may take nothing of its answers")
	fs.DurationVar(&c.Linger, contract.FlagLinger, contract.RouterLinger, "after SIGTERM, go on for so long, while /ready says no")
	fs.DurationVar(&c.Spread, contract.FlagSpread, contract.RouterSpread, "then close connections over so long, one after the other, each right after an answer; 0 at once")
	fs.DurationVar(&c.DrainTimeout, contract.FlagDrainTimeout, router.DefaultDrainTimeout, "then wait for answers for so long")
	fs.DurationVar(&c.Slow, "slow", 100*time.Millisecond, "log requests that take so long, or fail: one a second of each thread at most; 0 none")
	fs.Func(contract.FlagFailedReads, "the answer to a read of a key whose member can't be asked, or answers with an error: \"miss\", which is the default, or \"error\", which ends the read", f.failedReads)
	fs.StringVar(&f.clientTLS, contract.FlagClientTLSDir, "", "speak TLS with applications: a directory with "+contract.CertFile+" and "+contract.KeyFile)
	fs.BoolVar(&f.clientVerify, contract.FlagClientVerify, false, "serve only applications that show a certificate which an authority in "+contract.CAFile+" of --"+contract.FlagClientTLSDir+" signed")
	fs.StringVar(&f.clientLogins, contract.FlagClientAuthFile, "", "ask applications for a login: a file with lines user:password")
	addConnection(fs, &c.Dialer.Connection)
	f.onMiss.add(fs)
}

func (f *routeFlags) failedReads(text string) error {
	switch text {
	case contract.FailedReadsMiss, contract.FailedReadsError:
		f.config.ReadErrors = text == contract.FailedReadsError
		return nil
	}
	return fmt.Errorf("%s or %s is needed", contract.FailedReadsMiss, contract.FailedReadsError)
}

// leastMemory is how many bytes the garbage collector leaves alone: below that, collecting would gain little.
const leastMemory = 48 << 20

// runRoute serves applications until SIGTERM.
func runRoute(ctx context.Context, line []string, std commandline.IO) error {
	var f routeFlags
	fs := commandline.NewFlags("route")
	f.add(fs)
	if err := commandline.ParseFlags(fs, line, std); err != nil {
		return err
	}
	if err := commandline.NoArguments(fs); err != nil {
		return err
	}
	defer serveProfiles(os.Getenv(profileVariable), std.Err)()
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(max(int64(f.maxMemory)*7/4, leastMemory))
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	r, err := f.router(ctx, std)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	if f.ring.path != "" {
		f.ring.given = make(chan *router.Table)
		watching, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		go f.ring.watch(watching, r, std.Logf)
	}
	if f.admin != "" {
		end, err := serveAdmin(f.admin, r, &f.ring, f.certificate())
		if err != nil {
			_ = listener.Close()
			return err
		}
		defer end()
	}
	std.Logf("serves %s for %d members", listener.Addr(), len(f.config.Table.New.Servers))
	return r.Serve(ctx, listener)
}

// router makes a router by the flags.
func (f *routeFlags) router(ctx context.Context, std commandline.IO) (*router.Router, error) {
	c := &f.config
	var err error
	if c.Table, err = f.table(ctx); err != nil {
		return nil, err
	}
	if c.Loops < 1 {
		return nil, commandline.Usagef("--threads: at least 1 is needed")
	}
	c.Logf = std.Logf
	if c.OnMiss, err = f.onMiss.config(); err != nil {
		return nil, err
	}
	c.MaxFiles = linux.MaxFiles()
	c.MaxMemory = max(f.maxMemory/c.Loops, 1<<20)
	if f.clientVerify && f.clientTLS == "" {
		return nil, commandline.Usagef("--%s needs --%s", contract.FlagClientVerify, contract.FlagClientTLSDir)
	}
	if f.clientTLS != "" {
		files := memcache.Dialer{Connection: contract.Connection{TLSDir: f.clientTLS}}
		c.TLS = func() (*tls.Config, error) { return files.ServerTLS(f.clientVerify) }
		if _, err := c.TLS(); err != nil {
			return nil, err
		}
	}
	if f.clientLogins != "" {
		c.Logins = memcache.Dialer{Connection: contract.Connection{AuthFile: f.clientLogins}}.Logins
		if _, err := c.Logins(); err != nil {
			return nil, err
		}
	}
	return router.New(*c)
}

// table returns the router's first table: the file's, or a ring that doesn't change.
func (f *routeFlags) table(ctx context.Context) (*router.Table, error) {
	if f.ring.path != "" {
		if f.routing.client != "" || len(f.routing.servers) > 0 {
			return nil, commandline.Usagef("--%s can't be combined with --%s and --%s", contract.FlagRingFile, contract.FlagClient, contract.FlagServer)
		}
		f.config.Fence = true
		t, err := f.ring.read(ctx)
		f.ring.taken()
		return t, err
	}
	const nameTimeout = time.Minute
	if err := f.routing.resolve(ctx, nameTimeout); err != nil {
		return nil, err
	}
	owner, err := f.routing.owner()
	return &router.Table{New: router.Ring{Servers: f.routing.servers, Owner: owner}}, err
}

// certificate returns a handler that reports the state of the certificate for applications; nil if there is
// none.
func (f *routeFlags) certificate() http.Handler {
	if f.clientTLS == "" {
		return nil
	}
	files := memcache.Dialer{Connection: contract.Connection{TLSDir: f.clientTLS}}
	return files.CertificateHandler(func() error {
		_, err := files.ServerTLS(f.clientVerify)
		return err
	})
}

// serveAdmin serves /ready, /metrics, /ring and, if there is a certificate, /certificate until end is called.
func serveAdmin(address string, r *router.Router, ring *ringFile, certificate http.Handler) (end func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for /ready, /metrics and /ring: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", r.Admin())
	if certificate != nil {
		mux.Handle("GET "+contract.CertificatePath, certificate)
	}
	say := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(ring.acknowledged(r))
	}
	mux.HandleFunc("GET /ring", say)
	var tables arriving
	mux.HandleFunc("PUT /ring", func(w http.ResponseWriter, q *http.Request) {
		table := tables.begin(w)
		if table == nil {
			http.Error(w, "other tables are taken", http.StatusServiceUnavailable)
			return
		}
		defer tables.end(table)
		text, err := tables.read(table, w, q)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if status, err := ring.take(q.Context(), r, text, q.Header.Get(contract.RingSignature)); err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		say(w, q)
	})
	server := listen.HTTP(mux)
	go func() {
		if err := server.Serve(listen.Bounded(listener)); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // no other goroutine closes the listener
		}
	}()
	return func() { _ = server.Close() }, nil
}
