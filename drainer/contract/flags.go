package contract

import (
	"strconv"
	"time"
)

// Names of the drainer's flags that the controllers set.
const (
	FlagDir                = "dir"
	FlagMemoryDir          = "memory-dir"
	FlagSourceID           = "source-id"
	FlagClient             = "client"
	FlagServer             = "server"
	FlagKeyPrefix          = "key-prefix"
	FlagUnreachableTimeout = "unreachable-timeout"
	FlagDeadline           = "deadline"
	FlagReceipt            = "receipt"
	FlagPort               = "port"
	FlagHangAfter          = "hang-after"
	FlagGracePeriod        = "grace-period"
	FlagTerminationLog     = "termination-log"
	FlagScratch            = "scratch"
	FlagNeverStarted       = "never-started"
	FlagSource             = "source"
	FlagDiscard            = "discard"
	FlagRateLimitItems     = "rate-limit-items"
	FlagRateLimitBytes     = "rate-limit-bytes"
	FlagSkipExpiringWithin = "skip-expiring-within"
	FlagTLSDir             = "tls-dir"
	FlagAuthFile           = "auth-file"
	FlagList               = "list"
	FlagDiscovery          = "discovery"
	FlagExportPort         = "export-port"
	FlagProbePort          = "probe-port"
	// FlagStep is the file with the annotation that tells a member to start empty (StepOut).
	FlagStep           = "step-file"
	FlagMetricsPort    = "metrics-port"
	FlagPatience       = "patience"
	FlagBeginFile      = "begin-file"
	FlagBeginWhen      = "begin-when"
	FlagBeginWithin    = "begin-within"
	FlagFollow         = "follow"
	FlagLeases         = "leases"
	FlagListen         = "listen"
	FlagAdmin          = "admin"
	FlagClientTLSDir   = "client-tls-dir"
	FlagClientAuthFile = "client-auth-file"
	FlagClientVerify   = "client-verify"
	FlagRingFile       = "ring-file"
	FlagMaxItemSize    = "max-item-size"
	FlagMaxMemory      = "max-memory"
	FlagFailedReads    = "failed-reads"
	FlagLinger         = "linger"
	FlagSpread         = "spread"
	FlagDrainTimeout   = "drain-timeout"
	// The cache that a router asks for what the members miss.
	FlagOnMiss          = "on-miss"
	FlagOnMissClient    = "on-miss-client"
	FlagOnMissKeyPrefix = "on-miss-key-prefix"
	FlagOnMissTLSDir    = "on-miss-tls-dir"
	FlagOnMissAuthFile  = "on-miss-auth-file"
	FlagOnMissTTL       = "on-miss-ttl"
	FlagOnMissTimeout   = "on-miss-timeout"
)

// Values of FlagFailedReads.
const (
	FailedReadsMiss  = "miss"
	FailedReadsError = "error"
)

// The readers in a receipt. ReaderWarmFile read a volume. ReaderLive asked a running member for some or all
// of the items. ReaderStream read only the stream of the member's supervisor.
const (
	ReaderWarmFile = "WarmFile"
	ReaderLive     = "Live"
	ReaderStream   = "Stream"
)

// Files in TLSDir: the keys of a Secret of type kubernetes.io/tls.
const (
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
	CAFile   = "ca.crt"
)

// Connection names the files for TLS and logins. If it is empty, a connection is plain text, without a login.
type Connection struct {
	// TLSDir contains CAFile, which verifies the servers' certificates. If servers ask for a client
	// certificate, it also contains CertFile and KeyFile.
	TLSDir string
	// AuthFile has lines of the form user:password. The drainer uses the first.
	AuthFile string
}

// VerifyClients is the argument of memcached that makes it ask clients for certificates.
const VerifyClients = "ssl_verify_mode=2"

// Memcached renders the arguments with which memcached accepts such connections. The supervisor recognises
// these arguments in this form and ignores their changes, because a warm file doesn't depend on them.
func (c Connection) Memcached(verifyClients bool) (args []string) {
	if c.TLSDir != "" {
		extended := FlagMemcachedTLS + "chain_cert=" + c.TLSDir + "/" + CertFile +
			",ssl_key=" + c.TLSDir + "/" + KeyFile + ",ssl_ca_cert=" + c.TLSDir + "/" + CAFile
		if verifyClients {
			extended += "," + VerifyClients
		}
		args = append(args, FlagMemcachedEnableTLS, extended)
	}
	if c.AuthFile != "" {
		args = append(args, FlagMemcachedAuth+c.AuthFile)
	}
	return args
}

// Prefixes of the arguments that Memcached renders.
const (
	FlagMemcachedEnableTLS = "--enable-ssl"
	FlagMemcachedTLS       = "--extended=ssl_"
	FlagMemcachedAuth      = "--auth-file="
)

func (c Connection) connectionArgs() (args []string) {
	if c.TLSDir != "" {
		args = append(args, "--"+FlagTLSDir+"="+c.TLSDir)
	}
	if c.AuthFile != "" {
		args = append(args, "--"+FlagAuthFile+"="+c.AuthFile)
	}
	return args
}

// Transfer holds the arguments that are common to all commands that move items.
type Transfer struct {
	// SourceID goes into the receipt: for a drain the claim's UID, for a move its claim and its ring.
	SourceID string
	// Client names the routing (see package routing).
	Client string
	// KeyPrefix is what the client writes before its keys and doesn't hash.
	KeyPrefix string
	// Servers are the members that items go to, in ring order: "[NAME=]HOST:PORT". NAME is what the client
	// calls the server, HOST:PORT is its network address.
	Servers []string
	// UnreachableTimeout bounds how long one server may stay without an answer.
	UnreachableTimeout time.Duration
	// Deadline bounds how long the drainer may run; 0 is no bound. A drainer that exceeds it ends with
	// ReasonDeadlineExceeded.
	Deadline time.Duration
	// Receipt is the file that the receipt is written to.
	Receipt string
	// Scratch is a directory for temporary files.
	Scratch string
	// RateLimitItems and RateLimitBytes bound what is added per second; 0 no limit.
	RateLimitItems, RateLimitBytes int64
	// SkipExpiringWithin leaves out items that expire within this time.
	SkipExpiringWithin time.Duration
	// Connection is used for all members.
	Connection
}

// Drain holds the arguments of "drainer drain".
type Drain struct {
	// Dir is where the departed member's volume is mounted, read-only.
	Dir string
	// NeverStarted means that no container of the member's first pod had started when the member was told to
	// leave. If the supervisor did not start after that either, a volume without the supervisor's files was
	// never used.
	NeverStarted bool
	Transfer
}

// Args renders the command line, without the program's name.
func (m Drain) Args() []string {
	args := []string{"drain", "--" + FlagDir + "=" + m.Dir}
	if m.NeverStarted {
		args = append(args, "--"+FlagNeverStarted)
	}
	return append(args, m.args()...)
}

// Move holds the arguments of "drainer move".
type Move struct {
	// Source is the running member whose items are moved, written as in Servers. If it is none of the
	// Servers, it is leaving, and others own all of its items. The list of its keys is written to Scratch.
	Source string
	// Patience is how long, counted from when they are told, clients may still use an earlier list. A leaving
	// member waits for its last client, a staying one for the last item that others own. Patience and
	// BeginWithin together must be shorter than Deadline.
	Patience time.Duration
	// Begin says when the move begins.
	Begin Begin
	// Leases means that only routers use the members, and all of them are in state RingMove. Then each key is
	// moved under its lease.
	Leases bool
	// Discard names the Servers that are lost, as host:port. The source deletes the items that they own
	// without moving them, because clients may have stored newer values there.
	Discard []string
	// ExportPort is where the source's supervisor streams items; 0 if it streams none.
	ExportPort int32
	Transfer
}

// Args renders the command line, without the program's name.
func (r Move) Args() []string {
	args := []string{"move", "--" + FlagSource + "=" + r.Source}
	for _, s := range r.Discard {
		args = append(args, "--"+FlagDiscard+"="+s)
	}
	if r.ExportPort > 0 {
		args = append(args, "--"+FlagExportPort+"="+strconv.Itoa(int(r.ExportPort)))
	}
	if r.Patience > 0 {
		args = append(args, "--"+FlagPatience+"="+r.Patience.String())
	}
	if r.Leases {
		args = append(args, "--"+FlagLeases)
	}
	args = append(args, r.Begin.args()...)
	return append(args, r.args()...)
}

// BeginLeases is appended to Begin.When if keys are to be moved under their leases, as Move.Leases says. The
// operator knows that only when the move begins.
const BeginLeases = "+leases"

// Begin says when a move moves its first item. Until then the move connects to all members, and the source's
// supervisor scans its items.
type Begin struct {
	// File shows an annotation of the drainer's pod, through the downward API. The move begins when the
	// file's text is When, or When and BeginLeases. If File is "", the move begins at once.
	File, When string
	// Within bounds the wait. A move that has not begun by then ends with ReasonNotBegun.
	Within time.Duration
	// Follow means that clients look for items in one place only. Then the move waits, for Move.Patience at most,
	// until half of their requests for its items go elsewhere.
	Follow bool
}

func (b Begin) args() (args []string) {
	if b.File == "" {
		return nil
	}
	args = []string{"--" + FlagBeginFile + "=" + b.File, "--" + FlagBeginWhen + "=" + b.When, "--" + FlagBeginWithin + "=" + b.Within.String()}
	if b.Follow {
		args = append(args, "--"+FlagFollow)
	}
	return args
}

// args renders the flags that differ from their defaults.
func (m Transfer) args() []string {
	args := []string{
		"--" + FlagSourceID + "=" + m.SourceID,
		"--" + FlagClient + "=" + m.Client,
		"--" + FlagUnreachableTimeout + "=" + m.UnreachableTimeout.String(),
		"--" + FlagReceipt + "=" + m.Receipt,
	}
	for _, f := range []struct {
		set         bool
		name, value string
	}{
		{m.Deadline > 0, FlagDeadline, m.Deadline.String()},
		{m.KeyPrefix != "", FlagKeyPrefix, m.KeyPrefix},
		{m.Scratch != "", FlagScratch, m.Scratch},
		{m.RateLimitItems > 0, FlagRateLimitItems, strconv.FormatInt(m.RateLimitItems, 10)},
		{m.RateLimitBytes > 0, FlagRateLimitBytes, strconv.FormatInt(m.RateLimitBytes, 10)},
		{m.SkipExpiringWithin > 0, FlagSkipExpiringWithin, m.SkipExpiringWithin.String()},
	} {
		if f.set {
			args = append(args, "--"+f.name+"="+f.value)
		}
	}
	args = append(args, m.connectionArgs()...)
	for _, s := range m.Servers {
		args = append(args, "--"+FlagServer+"="+s)
	}
	return args
}

// Install holds the arguments of "drainer install".
type Install struct {
	// To is the directory that the drainer is copied to.
	To string
	// Member is the member that will run this copy.
	Member Supervise
}

// Args renders the command line, without the program's name.
func (i Install) Args() []string {
	args := []string{"install", "--" + FlagDir + "=" + i.Member.Dir}
	if i.Member.MemoryDir != "" {
		args = append(args, "--"+FlagMemoryDir+"="+i.Member.MemoryDir)
	}
	args = append(args, "--"+FlagTerminationLog+"="+i.Member.TerminationLog, i.To)
	return append(args, i.Member.Command...)
}

// Ready renders the command line, without the program's name, of the command that
// succeeds when the member on the port is warm.
func Ready(port int32) []string {
	return []string{"ready", "--" + FlagPort + "=" + strconv.Itoa(int(port))}
}

// ReadyPath is the HTTP path of probes; the answer is 200 if all is well.
const ReadyPath = "/ready"

// MetricsPath is the HTTP path of metrics, in Prometheus' text format.
const MetricsPath = "/metrics"

// Supervise holds the arguments of "drainer supervise".
type Supervise struct {
	// Dir is the member's volume; empty if nothing is to be saved. Then Connection or MetricsPort must be set.
	Dir string
	// MemoryDir is a directory in memory for the warm file; if empty, the file is on
	// the volume.
	MemoryDir string
	// Port is where memcached listens.
	Port int32
	// ExportPort is where the supervisor streams items to movers; 0 if it streams none.
	ExportPort int32
	// ProbePort is where the supervisor answers the kubelet's HTTP probe at ReadyPath, which asks whether
	// memcached answers; 0 if it answers none.
	ProbePort int32
	// MetricsPort is where the supervisor serves memcached's metrics at MetricsPath; 0 if nowhere.
	MetricsPort int32
	// TerminationLog is the file for the message that says what a crash would lead to; empty if there is
	// none.
	TerminationLog string
	// HangAfter is how long memcached may neither answer nor use the CPU; 0 is the drainer's default.
	HangAfter time.Duration
	// GracePeriod is the pod's: how long after SIGTERM the kubelet kills it; 0 is Kubernetes' default.
	GracePeriod time.Duration
	// List is the file with the clients' list. Discovery is the address, host:port, where clients ask for the
	// list. Both may be empty.
	List, Discovery string
	// Step is the file that tells it to start empty; empty if nothing does.
	Step string
	// Connection to memcached, which is started with the same files.
	Connection
	// Command is memcached and its arguments, without -e, which the supervisor adds.
	Command []string
}

// Args renders the command line, without the program's name.
func (s Supervise) Args() []string {
	args := []string{"supervise"}
	if s.Dir != "" {
		args = append(args, "--"+FlagDir+"="+s.Dir)
	}
	if s.MemoryDir != "" {
		args = append(args, "--"+FlagMemoryDir+"="+s.MemoryDir)
	}
	args = append(args, "--"+FlagPort+"="+strconv.Itoa(int(s.Port)))
	if s.ExportPort > 0 {
		args = append(args, "--"+FlagExportPort+"="+strconv.Itoa(int(s.ExportPort)))
	}
	if s.ProbePort > 0 {
		args = append(args, "--"+FlagProbePort+"="+strconv.Itoa(int(s.ProbePort)))
	}
	if s.MetricsPort > 0 {
		args = append(args, "--"+FlagMetricsPort+"="+strconv.Itoa(int(s.MetricsPort)))
	}
	if s.TerminationLog != "" {
		args = append(args, "--"+FlagTerminationLog+"="+s.TerminationLog)
	}
	if s.HangAfter > 0 {
		args = append(args, "--"+FlagHangAfter+"="+s.HangAfter.String())
	}
	if s.GracePeriod > 0 {
		args = append(args, "--"+FlagGracePeriod+"="+s.GracePeriod.String())
	}
	if s.Discovery != "" {
		args = append(args, "--"+FlagList+"="+s.List, "--"+FlagDiscovery+"="+s.Discovery)
	}
	if s.Step != "" {
		args = append(args, "--"+FlagStep+"="+s.Step)
	}
	args = append(args, s.connectionArgs()...)
	return append(append(args, "--"), s.Command...)
}
