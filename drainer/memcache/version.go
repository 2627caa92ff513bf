package memcache

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"example.com/memcached-operator/drainer/contract"
)

// ErrTooOld means that a server is older than contract.OldestMemcached. ErrTooOld matches ErrProtocol,
// because such a server reads some values as commands, and never deletes by CAS.
var ErrTooOld = fmt.Errorf("%w: this memcached is too old", ErrProtocol)

// CheckVersion returns why a memcached of that version can't be a member: it is older than
// contract.OldestMemcached. A version that isn't a number is accepted.
func CheckVersion(version string) error {
	if older, known := olderThan(version, contract.OldestMemcached); !known || !older {
		return nil
	}
	return fmt.Errorf("%w: it is memcached %.40s, and %s or later is needed", ErrTooOld, version, contract.OldestMemcached)
}

// olderThan compares two versions; known is false if one of them doesn't begin with three numbers.
func olderThan(version, other string) (older, known bool) {
	v, o := numbersOf(version), numbersOf(other)
	return slices.Compare(v, o) < 0, len(v) == len(o)
}

// numbersOf returns the first three numbers of a version such as "1.6.13"; nil if it doesn't begin with them.
func numbersOf(version string) []int {
	n := make([]int, 3)
	if read, _ := fmt.Sscanf(version, "%d.%d.%d", &n[0], &n[1], &n[2]); read != len(n) {
		return nil
	}
	return n
}

// DialMember connects to a member, as DialContext does, and also returns its version.
func (d Dialer) DialMember(ctx context.Context, network, address string) (net.Conn, string, error) {
	conn, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, "", err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	version, err := d.askMember(conn)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, "", err
	}
	return conn, version, nil
}

// askMember asks for the server's version, before any other request.
func (d Dialer) askMember(conn net.Conn) (version string, err error) {
	c := &Conn{conn: conn, r: bufio.NewReader(conn)}
	if version, err = c.Version(); err == nil {
		err = c.checkVersion(version)
	}
	if err == nil && d.Settled {
		err = c.replaying()
	}
	return version, err
}

// checkVersion is CheckVersion. If the server doesn't report its version, checkVersion tests what the server
// supports.
func (c *Conn) checkVersion(version string) error {
	if _, known := olderThan(version, contract.OldestMemcached); known {
		return CheckVersion(version)
	}
	takes, err := c.takesMeta()
	if err == nil && !takes {
		err = fmt.Errorf("%w: it says that it is %.40q, and takes no meta commands of %s", ErrTooOld, version, contract.OldestMemcached)
	}
	return err
}

// Version returns the server's version, such as "1.6.18".
func (c *Conn) Version() (string, error) {
	line, err := c.roundTrip("version\r\n")
	if err != nil {
		return "", err
	}
	version, ok := strings.CutPrefix(string(line), "VERSION ")
	if !ok {
		return "", fmt.Errorf("%w to version: %.80q", ErrProtocol, line)
	}
	return version, nil
}

// takesMeta tells whether the server takes meta sets in their final form. Versions before 1.6.10 expect the
// size in another position, and know no base64 keys: they refuse the command line, and then read the value as
// further commands. Here the value is not a command.
func (c *Conn) takesMeta() (bool, error) {
	// This is a replace of a key that does not exist.
	if err := c.Send([]byte("ms AG5vYm9keSBoYXMgdGhpcw0K 1 MR b\r\n0\r\nmn\r\n")); err != nil {
		return false, err
	}
	for takes, lines := true, 0; lines < mostAnswers; lines++ {
		line, err := c.line()
		switch {
		case err != nil:
			return false, err
		case string(line) == "MN":
			return takes, nil
		case lines > 0 && string(line) == "ERROR": // the answer to mn: it knows no meta commands
			return false, nil
		}
		takes = takes && (bytes.HasPrefix(line, []byte("NS")) || bytes.HasPrefix(line, []byte("HD")))
	}
	return false, fmt.Errorf("%w: it answers a request too often", ErrProtocol)
}

// mostAnswers bounds the answers to a meta set and its value that are read as requests.
const mostAnswers = 8
