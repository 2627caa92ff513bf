package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/wait"
)

func parse(t *testing.T, args ...string) *flags {
	t.Helper()
	var f flags
	fs := flag.NewFlagSet("manager", flag.ContinueOnError)
	f.register(fs)
	if err := fs.Parse(append([]string{"--memcached-image=a", "--operator-image=b"}, args...)); err != nil {
		t.Fatal(err)
	}
	return &f
}

func TestHeapLimitIsNineTenthsOfTheContainers(t *testing.T) {
	for name, test := range map[string]struct {
		container string
		want      int64
		wantErr   bool
	}{
		"none is known": {"", 0, false},
		"no limit":      {"0", 0, false},
		"512 MiB":       {"536870912", 483183821, false},
		"odd":           {"11", 10, false},
		"a quantity":    {"512Mi", 0, true},
		"negative":      {"-1", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := heapLimit(test.container)
			if got != test.want || (err != nil) != test.wantErr {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}

func TestTheHeapGrowsToItsGoalAndByAThirdBeyond(t *testing.T) {
	for live, want := range map[uint64]int{
		0: mostGrowth, 4 << 20: mostGrowth, heapGoal / 3: 200, heapGoal / 2: 100,
		heapGoal - heapGoal/10: leastGrowth, heapGoal: leastGrowth, 8 * heapGoal: leastGrowth,
	} {
		if got := heapGrowth(live); got != want {
			t.Errorf("%d bytes stay: %d %%, want %d %%", live, got, want)
		}
	}
}

func TestTheHeapsGrowthIsSetAfterEachCollection(t *testing.T) {
	set := make(chan int, 1)
	afterEachCollection(func() {
		setHeapGrowth()
		select {
		case set <- debug.SetGCPercent(leastGrowth):
		default:
		}
	})
	for range 3 {
		runtime.GC()
		if got := <-set; got <= leastGrowth {
			t.Errorf("the heap of a small process may grow by %d %%, want more", got)
		}
	}
}

// writePair writes a certificate of this serial number, and its key.
func writePair(t *testing.T, dir string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"metrics"}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: cert}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMetricsAreServedWithTheFilesOfTheFlags(t *testing.T) {
	got := parse(t, "--metrics-cert-path=/certs", "--metrics-cert-name=a.crt", "--metrics-cert-key=a.key").managerOptions().Metrics
	if got.CertDir != "/certs" || got.CertName != "a.crt" || got.KeyName != "a.key" {
		t.Errorf("got %q, %q, %q", got.CertDir, got.CertName, got.KeyName)
	}
}

// A new certificate, as cert-manager and kubelets write it, is served without a restart.
func TestMetricsCertificateIsReadAgainWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir, 1)
	f := parse(t, "--metrics-bind-address=127.0.0.1:0", "--metrics-cert-path="+dir)
	options := f.managerOptions().Metrics
	options.FilterProvider = nil // the filter would ask an API server
	server, err := metricsserver.NewServer(options, nil, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	address := server.(interface{ GetBindAddr() string }).GetBindAddr
	wait.For(t, "the first certificate", func() error { return serves(address(), 1) })
	writePair(t, dir, 2)
	// The file is read at least every ten seconds.
	wait.For(t, "the second certificate", func() error { return serves(address(), 2) })
}

// serves tells whether the server shows the certificate of this serial number.
func serves(address string, serial int64) error {
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != serial {
		return fmt.Errorf("it has number %d", got)
	}
	return nil
}

func TestFlagsThatCanNotBeAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no such certificate":         {[]string{"--metrics-cert-path=" + t.TempDir()}, "--metrics-cert-path"},
		"a certificate without HTTPS": {[]string{"--metrics-cert-path=/certs", "--metrics-secure=false"}, "--metrics-secure=false"},
		"no reconciles":               {[]string{"--max-concurrent-reconciles=0"}, "--max-concurrent-reconciles"},
		"no image":                    {[]string{"--operator-image="}, "--operator-image"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := parse(t, test.args...).check(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want one that names %s", err, test.want)
			}
		})
	}
}

func TestUninstallsFlagsAreParsedOrRefused(t *testing.T) {
	t.Setenv("WATCH_NAMESPACES", "")
	for name, test := range map[string]struct {
		args    []string
		want    controllers.UninstallOptions
		wantErr string
	}{
		"defaults": {nil, controllers.UninstallOptions{Timeout: time.Minute}, ""},
		"all": {
			[]string{"--deployment=ns/name", "--memcacheds=Delete", "--namespaces=a, b", "--timeout=3s"},
			controllers.UninstallOptions{
				Deployment: client.ObjectKey{Namespace: "ns", Name: "name"}, DeleteClusters: true,
				Namespaces: []string{"a", "b"}, Timeout: 3 * time.Second,
			}, "",
		},
		"a deployment without a namespace": {[]string{"--deployment=name"}, controllers.UninstallOptions{}, "NAMESPACE/NAME"},
		"another word":                     {[]string{"--memcacheds=delete"}, controllers.UninstallOptions{}, "Keep or Delete"},
		"no time":                          {[]string{"--timeout=0s"}, controllers.UninstallOptions{}, "--timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			var f uninstallFlags
			fs := flag.NewFlagSet("uninstall", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			f.register(fs)
			if err := fs.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			got, err := f.options()
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %v, want one that says %s", err, test.wantErr)
				}
				return
			}
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(controllers.UninstallOptions{})); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

// Replicas of one installation share a lease, and other installations have other leases.
func TestAnInstallationIsNamedAfterItsLease(t *testing.T) {
	f := &flags{leaderElectionNS: "tools"}
	if got, want := f.installation(), "tools/"+f.managerOptions().LeaderElectionID; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if name := (&flags{}).installation(); name == "" {
		t.Error("outside of a cluster an installation has no name")
	}
}
