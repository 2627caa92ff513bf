package routing

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// ParseServer reads "[NAME=]HOST:PORT". NAME may not contain "=", "," or space.
func ParseServer(s string) (Server, error) {
	name, address, named := strings.Cut(s, "=")
	if !named {
		name, address = "", s
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return Server{}, fmt.Errorf("server %q is not [NAME=]HOST:PORT: %w", s, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Server{}, fmt.Errorf("server %q: the port is not a number from 1 to 65535", s)
	}
	if host == "" || (named && name == "") || strings.ContainsAny(name, ", \t") {
		return Server{}, fmt.Errorf("server %q is not [NAME=]HOST:PORT", s)
	}
	return Server{Name: name, Host: host, Port: uint16(n)}, nil
}

// clientHostPort returns the server's host and port as the client knows them.
func (s Server) clientHostPort() (host string, port uint16) {
	if s.Name == "" {
		return s.Host, s.Port
	}
	if host, port, err := net.SplitHostPort(s.Name); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			return host, uint16(n)
		}
	}
	return s.Name, s.Port
}

// At returns the server when it is dialled at another port. The client still uses the old name, so its keys
// stay. The host has to be a name: after an IPv6 address, a port could not be told from the address.
func (s Server) At(client string, port uint16) Server {
	if s.Port != port {
		s.Name, s.Port = s.Called(client), port
	}
	if s.Name == s.Address() {
		s.Name = ""
	}
	return s
}

// Called returns the client's name for the server: HOST:PORT, or an alias that the client hashes without a
// port.
func (s Server) Called(client string) string {
	if client == twemproxyClient && isAlias(s) {
		return s.Name
	}
	return hostPortName(s)
}

// Text is the inverse of ParseServer.
func (s Server) Text() string {
	if s.Name == "" {
		return s.Address()
	}
	return s.Name + "=" + s.Address()
}

// Address returns where the server is dialled, HOST:PORT.
func (s Server) Address() string {
	return net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port)))
}

// String returns the server's alias if it has one, else its address.
func (s Server) String() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Address()
}

// hostPortName returns "host:port", whatever the port.
func hostPortName(s Server) string {
	host, port := s.clientHostPort()
	return host + ":" + strconv.Itoa(int(port))
}
