package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"time"
)

// api sends simple requests to the API server, as the administrator.
type api struct {
	client *http.Client
}

// newAPI reads the identity from the administrator's kubeconfig, which pki.WriteKubeconfig wrote.
func newAPI() (*api, error) {
	text, err := os.ReadFile(Kubeconfig)
	if err != nil {
		return nil, err
	}
	field := func(name string) []byte {
		found := regexp.MustCompile(name + `: (\S+)`).FindSubmatch(text)
		if found == nil {
			return nil
		}
		value, _ := base64.StdEncoding.DecodeString(string(found[1]))
		return value
	}
	pair, err := tls.X509KeyPair(field("client-certificate-data"), field("client-key-data"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Kubeconfig, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(field("certificate-authority-data"))
	return &api{client: &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}},
	}}, nil
}

// get reads the path; into may be nil.
func (a *api) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, serverURL()+path, nil)
	if err != nil {
		return err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

func (a *api) ready(ctx context.Context) error { return a.get(ctx, "/readyz", nil) }

func (a *api) nodeReady(ctx context.Context, name string) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := a.get(ctx, "/api/v1/nodes/"+name, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			if condition.Status == "True" {
				return nil
			}
			return fmt.Errorf("%s is not Ready: %s", name, condition.Message)
		}
	}
	return fmt.Errorf("%s has not reported yet", name)
}

func (a *api) defaultsExist(ctx context.Context) error {
	if err := a.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil); err != nil {
		return err
	}
	return a.get(ctx, "/apis/storage.k8s.io/v1/storageclasses/"+storageClass, nil)
}

// dnsAnswers asks for a name as a pod would: at the service's address, and so through kube-proxy.
func dnsAnswers(ctx context.Context) error {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: time.Second}
		return dialer.DialContext(ctx, "udp", net.JoinHostPort(serviceOfDNS.String(), "53"))
	}}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	addresses, err := resolver.LookupHost(ctx, "kubernetes.default.svc."+clusterDomain+".")
	if err != nil {
		return fmt.Errorf("DNS service: %w", err)
	}
	if len(addresses) != 1 || addresses[0] != serviceOfAPI.String() {
		return fmt.Errorf("DNS service: unexpected answer %v", addresses)
	}
	return nil
}
