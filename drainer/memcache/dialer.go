package memcache

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"example.com/memcached-operator/drainer/contract"
)

// ErrLogin means that the server accepts no login, or not this one.
var ErrLogin = errors.New("the login was refused")

// Dialer connects to servers: by TLS if there are certificates, with a login if there is an auth file. The
// zero value uses plain text. The files are looked at for each connection, so a new connection uses new files.
type Dialer struct {
	contract.Connection
	// Unverified accepts any certificate of a server, for this process's own child: the certificate isn't for
	// the loopback address, where no other process listens.
	Unverified bool
	// Settled makes connections to a member fail during its replay; see ErrReplaying.
	Settled bool
	// AnyServer allows a server that is no member. Otherwise each connection first asks whether the server is
	// a memcached that is new enough; see ErrTooOld.
	AnyServer bool
	// Places has the servers that are kept apart; nil if two addresses may lead to one server.
	Places *Places
}

// Dial connects to HOST:PORT, or to a Unix socket where address starts with "/".
func Dial(ctx context.Context, address string) (*Conn, error) { return Dialer{}.Dial(ctx, address) }

// readAtOnce is how many bytes a Conn reads at once: a few hundred short answers.
const readAtOnce = 16 << 10

// Dial connects to HOST:PORT, or to a Unix socket where address starts with "/".
func (d Dialer) Dial(ctx context.Context, address string) (*Conn, error) {
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, r: bufio.NewReaderSize(conn, readAtOnce)}, nil
}

// DialContext is net.Dialer's, followed by TLS, the login, and the questions whether the server is a
// memcached that is new enough, and whether it is in a replay. ctx bounds all of these steps.
func (d Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.AnyServer {
		return d.connect(ctx, network, address)
	}
	conn, _, err := d.DialMember(ctx, network, address)
	return conn, err
}

func (d Dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := d.Places.take(address, conn); err != nil {
		conn.Close()
		return nil, err
	}
	if d.Connection == (contract.Connection{}) {
		return conn, nil
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	secured, err := d.secure(ctx, conn, address)
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		stop()
		conn.Close()
		return nil, err
	}
	return secured, nil
}

func (d Dialer) secure(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	if d.TLSDir != "" {
		config, err := d.tlsConfig(address)
		if err != nil {
			return nil, err
		}
		client := tls.Client(conn, config)
		if err := client.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("TLS with %s: %w", address, err)
		}
		conn = tlsConn{client}
	}
	if d.AuthFile == "" {
		return conn, nil
	}
	login, err := readLogin(d.AuthFile)
	if err != nil {
		return nil, err
	}
	return conn, login.present(conn)
}

// tlsConn writes so that memcached reads everything. memcached reads a record in part: as much as its buffer
// has room for, or up to the end of a value. Then it waits for the socket, and overlooks the rest of the
// record, which OpenSSL still has. So no record is larger than half of that buffer, and the last bytes are a
// separate record, too small for the end of a value and something after it.
type tlsConn struct{ *tls.Conn }

func (c tlsConn) Write(b []byte) (n int, err error) {
	const record, last = 8 << 10, len("mn\r\n")
	for n < len(b) && err == nil {
		size := min(record, len(b)-n)
		if rest := len(b) - n; rest > last {
			size = min(record, rest-last)
		}
		var written int
		written, err = c.Conn.Write(b[n : n+size])
		n += written
	}
	return n, err
}

func (d Dialer) tlsConfig(address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	roots, err := d.authorities()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: host, InsecureSkipVerify: d.Unverified}
	switch pair, err := d.certificate(); {
	case err == nil:
		config.Certificates = []tls.Certificate{pair} // for servers that ask for a certificate
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	return config, nil
}

// authorities returns the authorities that verify the servers' certificates.
func (d Dialer) authorities() (*x509.CertPool, error) {
	return keptAuthorities.get("", authoritiesOf, d.tlsFile(contract.CAFile))
}

func authoritiesOf(texts [][]byte) (*x509.CertPool, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(texts[0]) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", contract.CAFile)
	}
	return roots, nil
}

func (d Dialer) tlsFile(name string) string { return filepath.Join(d.TLSDir, name) }

func (d Dialer) certificate() (tls.Certificate, error) {
	pair, err := keptCertificates.get("", certificateOf, d.tlsFile(contract.CertFile), d.tlsFile(contract.KeyFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return pair, fmt.Errorf("%s and %s: %w", contract.CertFile, contract.KeyFile, err)
	}
	return pair, err
}

func certificateOf(texts [][]byte) (tls.Certificate, error) {
	return tls.X509KeyPair(texts[0], texts[1])
}

// The parsed files of Secrets, until the files change.
var (
	keptAuthorities  kept[*x509.CertPool]
	keptCertificates kept[tls.Certificate]
	keptConfigs      kept[*tls.Config]
	keptLogins       kept[[]contract.Login]
	keptSums         kept[string]
)

// Check returns the errors in the files. If usages are given, there must be a certificate that the
// authorities verify for each usage. Check ignores the period of validity, which the peers check.
func (d Dialer) Check(usages ...x509.ExtKeyUsage) error {
	if d.TLSDir != "" {
		if err := d.checkCertificate(usages); err != nil {
			return err
		}
	}
	if d.AuthFile == "" {
		return nil
	}
	_, err := readLogin(d.AuthFile)
	return err
}

func (d Dialer) checkCertificate(usages []x509.ExtKeyUsage) error {
	roots, err := d.authorities()
	if err != nil {
		return err
	}
	pair, err := d.certificate()
	if err != nil {
		if len(usages) == 0 && errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	between := intermediates(&pair)
	for _, usage := range usages {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between,
			CurrentTime: pair.Leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			use := map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: "server", x509.ExtKeyUsageClientAuth: "client"}[usage]
			return fmt.Errorf("%s as the certificate of a %s, by %s: %w", contract.CertFile, use, contract.CAFile, err)
		}
	}
	return nil
}

// login is one line of an auth file.
type login struct{ contract.Login }

// readLogin returns the first login of an auth file.
func readLogin(path string) (login, error) {
	all, err := loginsIn(path)
	if err != nil {
		return login{}, err
	}
	return login{all[0]}, nil
}

// present logs in if the server asks for a login. A server that doesn't ask, because it has not been
// restarted with an auth file yet, would store the password as an item.
func (l login) present(conn net.Conn) error {
	answer, err := ask(conn, "version\r\n")
	if err != nil || strings.HasPrefix(answer, "VERSION ") {
		return err
	}
	data := l.User + " " + l.Password
	answer, err = ask(conn, fmt.Sprintf("set login 0 0 %d\r\n%s\r\n", len(data), data))
	if err == nil && answer != "STORED" {
		err = fmt.Errorf("%w: %.80q", ErrLogin, answer)
	}
	return err
}

// ask sends a request whose answer is one line, and reads nothing beyond that line.
func ask(conn net.Conn, request string) (string, error) {
	if _, err := conn.Write([]byte(request)); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadSlice('\n')
	return strings.TrimRight(string(line), "\r\n"), err
}

// Served returns the certificate that the server at address shows.
func (d Dialer) Served(ctx context.Context, address string) (*x509.Certificate, error) {
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(tlsConn).ConnectionState().PeerCertificates[0], nil
}
