package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/tier"
)

// hashedNames are the names by which clients hash a server, with its address.
var hashedNames = map[cachev1alpha1.Client]func(host, ip string) string{
	"evcache":             func(host, ip string) string { return host + "/" + ip },
	"spymemcached-ketama": func(host, ip string) string { return host + "/" + ip + ":11211" },
}

// TestAddressesStayForAClientThatLooksThemUpOnce has an application that hashes addresses, as EVCache and
// spymemcached's ketama do. The application is told once of three members at addresses that stay. The
// application finds all its items after a restart, and after a member has left and come back. Meanwhile
// drainers move items by the same names and addresses, for which the members have a certificate.
func TestAddressesStayForAClientThatLooksThemUpOnce(t *testing.T) {
	tier.Second(t, "TestAddressesStayOverRestartsAndScalings")
	t.Parallel()
	for client := range hashedNames {
		t.Run(string(client), func(t *testing.T) {
			t.Parallel()
			addressesStayFor(t, client)
		})
	}
}

func addressesStayFor(t *testing.T, client cachev1alpha1.Client) {
	t.Helper()
	f := inNamespace(t)
	spec := persistent(3)
	spec.Routing = cachev1alpha1.RoutingSpec{Client: client, Addresses: cachev1alpha1.AddressesStable}
	spec.TLS = &cachev1alpha1.TLSSpec{SecretName: "cache-tls"}
	spec.Auth = &cachev1alpha1.AuthSpec{SecretName: "cache-auth"}
	s := newSecrets(f, &spec)
	for i := range 3 {
		s.also = append(s.also, f.stableHost(i))
	}
	s.write("drainer:" + password + "\n")
	f.create(spec)
	f.settled(3)
	three := f.stableApp(client, 3)
	addresses := f.stableAddresses(3)
	objects := small(2000)
	f.must(three.Fill(f.ctx, objects))
	found := func(when string, a *app.App) {
		t.Helper()
		report, err := a.Check(f.ctx, objects)
		if err != nil || report.Found != int64(len(objects)) {
			t.Fatalf("%s: %v, %+v", when, err, report)
		}
	}
	found("at first", three)
	if advice := f.memcached().Status.Advice; len(advice) > 0 {
		t.Errorf("there is advice: %+v", advice)
	}

	was := f.pod(1)
	f.must(kube.Delete(f.ctx, was))
	f.replaced(was)
	f.settled(3)
	if f.pod(1).Status.PodIP == was.Status.PodIP {
		t.Error("its pod has the same address, so this proves nothing")
	}
	f.eventually("the Service leads to the new pod", func() bool {
		conn, err := f.dialer.Dial(f.ctx, addresses[1])
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	found("after a restart", three)

	f.scale(2)
	f.settled(2)
	found("when two are left", f.stableApp(client, 2))
	var answer error
	defer func() { t.Logf("a late client got: %v", answer) }()
	f.eventually("a late client is refused", func() bool {
		var conn net.Conn
		if conn, answer = dialSoon(f.ctx, "tcp", addresses[2]); answer == nil {
			_ = conn.Close()
		}
		return errors.Is(answer, syscall.ECONNREFUSED)
	})
	f.scale(3)
	f.settled(3)
	if now := f.stableAddresses(3); now[2] != addresses[2] {
		t.Errorf("the member that is back is at %s, and was at %s", now[2], addresses[2])
	}
	found("when the third is back, by what was looked up at first", three)

	for i, address := range addresses {
		f.must(f.certified(s, f.stableHost(i), address))
	}
	if err := f.certified(s, "another."+f.namespace+".svc", addresses[0]); err == nil {
		t.Error("the certificate is for another name, too: this proves nothing")
	}
}

func (f *fixture) stableHost(ordinal int) string {
	return fmt.Sprintf("%s-member-%d.%s.svc", f.name, ordinal, f.namespace)
}

// stableAddresses returns those of the members' Services.
func (f *fixture) stableAddresses(size int) []string {
	f.Helper()
	var addresses []string
	for i, server := range f.servers(size) {
		if server != f.stableHost(i)+":11211" {
			f.Fatalf("server %d is %s", i, server)
		}
		service := &corev1.Service{}
		f.must(kube.Get(f.ctx, f.key(fmt.Sprintf("%s-member-%d", f.name, i)), service))
		addresses = append(addresses, service.Spec.ClusterIP+":11211")
	}
	return addresses
}

// stableApp is an application with that client's ring of these members.
func (f *fixture) stableApp(client cachev1alpha1.Client, size int) *app.App {
	f.Helper()
	var servers []string
	for i, address := range f.stableAddresses(size) {
		ip, _, err := net.SplitHostPort(address)
		f.must(err)
		servers = append(servers, fmt.Sprintf("%s=%s", hashedNames[client](f.stableHost(i), ip), address))
	}
	dial := map[string]string{}
	for i, address := range f.stableAddresses(size) {
		dial[servers[i]] = address
	}
	a, err := app.New(string(client), servers, func(server string) string { return dial[server] })
	f.must(err)
	a.Dialer = f.dialer
	return a
}

// certified returns an error if the member at the address has no certificate for the name.
func (f *fixture) certified(s *secrets, name, address string) error {
	f.Helper()
	authorities, err := os.ReadFile(filepath.Join(s.dir, "ca.crt"))
	f.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name}}).DialContext(f.ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", name, address, err)
	}
	return conn.Close()
}
