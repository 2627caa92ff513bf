package contract

import (
	"strconv"
	"time"
)

// Names of the drainer's flags that the controller sets.
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
	FlagPatience           = "patience"
	FlagBeginFile          = "begin-file"
	FlagBeginWhen          = "begin-when"
	FlagBeginWithin        = "begin-within"
	FlagLeases             = "leases"
	FlagListen             = "listen"
	FlagAdmin              = "admin"
	FlagClientTLSDir       = "client-tls-dir"
	FlagClientAuthFile     = "client-auth-file"
	FlagClientVerify       = "client-verify"
	FlagRingFile           = "ring-file"
	FlagMaxItemSize        = "max-item-size"
	FlagMaxMemory          = "max-memory"
	FlagFailedReads        = "failed-reads"
)

// Values of FlagFailedReads.
const (
	FailedReadsMiss  = "miss"
	FailedReadsError = "error"
)

// Readers in a receipt: the items were read from a volume, or from a running member, which was
// asked for some of them or all, or whose supervisor has streamed all.
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

// Connection has the files for TLS and logins. Empty, a connection is plain text,
// without a login.
type Connection struct {
	// TLSDir has CAFile, which the servers' certificates are verified by, and, if
	// servers ask for a certificate, CertFile and KeyFile.
	TLSDir string
	// AuthFile has lines user:password. The drainer uses the first.
	AuthFile string
}

// VerifyClients is the argument of memcached that makes it ask clients for certificates.
const VerifyClients = "ssl_verify_mode=2"

// Memcached renders the arguments by which memcached accepts such connections. The
// supervisor recognises them in this form: a warm file doesn't depend on them.
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

// Beginnings of those arguments.
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
	// SourceID goes into the receipt: of a drain the claim's UID, of a move its claim
	// and its ring.
	SourceID string
	// Client names the routing (see package routing).
	Client string
	// KeyPrefix is what the client writes before its keys and doesn't hash.
	KeyPrefix string
	// Servers are the members where items go, in ring order: "[NAME=]HOST:PORT".
	// NAME is what the client calls the server, HOST:PORT where it is dialled.
	Servers []string
	// UnreachableTimeout bounds how long one server may not answer.
	UnreachableTimeout time.Duration
	// Deadline bounds how long the drainer may run; 0 no bound. One that exceeds it
	// ends with ReasonDeadlineExceeded.
	Deadline time.Duration
	// Receipt is the file that the receipt is written to.
	Receipt string
	// Scratch is a directory for temporary files.
	Scratch string
	// RateLimitItems and RateLimitBytes bound what is added per second; 0 no limit.
	RateLimitItems, RateLimitBytes int64
	// SkipExpiringWithin leaves out items that expire within this time.
	SkipExpiringWithin time.Duration
	// Connection to all members.
	Connection
}

// Drain holds the arguments of "drainer drain".
type Drain struct {
	// Dir is where the departed member's volume is mounted, read-only.
	Dir string
	// NeverStarted: when the member was told to leave, no container of its first pod
	// had started. If its supervisor did not start after that, either, a volume without
	// its files was never used.
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
	// Source is the running member whose items are moved, written as in Servers. The
	// list of its keys is in Scratch. If it is none of the Servers, it leaves: others own
	// all of its items.
	Source string
	// Patience is how long, from the first item on, clients may still use an earlier list: a
	// member that leaves waits for its last client, another for the last item that others own.
	// Together with BeginWithin it must be shorter than Deadline.
	Patience time.Duration
	// Begin is when it begins.
	Begin Begin
	// Leases: only routers use the members, and are in state RingMove, so each key is moved under
	// its lease.
	Leases bool
	// Discard names the Servers, host:port, that are lost. The source deletes the items
	// that they own, and gives them to nobody: clients may have stored newer values
	// there.
	Discard []string
	// ExportPort is where the source's supervisor streams items; 0 nowhere.
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

// BeginLeases is behind Begin.When, and says that keys are moved under their leases, as by
// Move.Leases: it is known only when the move begins.
const BeginLeases = "+leases"

// Begin is when a move moves its first item. Until then it connects to everybody, and the
// source's supervisor looks through its items.
type Begin struct {
	// File shows an annotation of the drainer's pod, by the downward API; "" if it begins at
	// once. It begins when the file's text is When, or When and BeginLeases.
	File, When string
	// Within bounds the wait. Then it ends with ReasonNotBegun.
	Within time.Duration
}

func (b Begin) args() (args []string) {
	if b.File == "" {
		return nil
	}
	args = []string{"--" + FlagBeginFile + "=" + b.File, "--" + FlagBeginWhen + "=" + b.When, "--" + FlagBeginWithin + "=" + b.Within.String()}
	return args
}

// args renders the flags, except those with their default values.
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
	// Member that it will serve.
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

// ReadyPath is where a probe is answered 200 if all is well.
const ReadyPath = "/ready"

// Supervise holds the arguments of "drainer supervise".
type Supervise struct {
	// Dir is the member's volume; empty if nothing is to be saved. Then there must be a
	// Connection.
	Dir string
	// MemoryDir is a directory in memory for the warm file; if empty, the file is on
	// the volume.
	MemoryDir string
	// Port that memcached listens on, to ask it for its statistics.
	Port int32
	// ExportPort is where it streams items to those who move them; 0 nowhere.
	ExportPort int32
	// ProbePort is where it tells the kubelet by HTTP, at ReadyPath, whether memcached answers; 0 nowhere.
	ProbePort int32
	// TerminationLog is the file for what a crash would lead to; empty: none.
	TerminationLog string
	// HangAfter is how long memcached may neither answer nor use the CPU; 0 is the
	// drainer's own default.
	HangAfter time.Duration
	// GracePeriod is the pod's: how long after SIGTERM the kubelet kills it; 0 is
	// Kubernetes' own default.
	GracePeriod time.Duration
	// List is the file with the clients' list, and Discovery the address, host:port, where
	// clients ask for it; empty for none.
	List, Discovery string
	// Connection to memcached, which is started with the same files.
	Connection
	// Command is memcached and its arguments, except -e, which serve adds.
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
	args = append(args, s.connectionArgs()...)
	return append(append(args, "--"), s.Command...)
}
