package cluster

import (
	"os"
	"time"

	"example.com/memcached-operator/test/cluster/internal/pki"
)

// identity is a client of the API server. Only the administrator is in system:masters; RBAC or the node
// authorizer give the others their rights by name.
type identity struct {
	file    string
	request pki.Request
}

func identities(nodes []*node) []identity {
	list := []identity{
		{userConfig("kube-controller-manager"), pki.Request{CommonName: "system:kube-controller-manager"}},
		{userConfig("kube-scheduler"), pki.Request{CommonName: "system:kube-scheduler"}},
		{userConfig("kube-proxy"), pki.Request{CommonName: "system:kube-proxy"}},
		{userConfig("coredns"), pki.Request{CommonName: "memcached-operator-cluster:coredns"}},
		{userConfig("provisioner"), pki.Request{CommonName: "memcached-operator-cluster:provisioner"}},
		{Kubeconfig, pki.Request{CommonName: "admin", Organizations: []string{"system:masters"}}},
	}
	for _, node := range nodes {
		list = append(list, identity{userConfig(node.name()),
			pki.Request{CommonName: node.user(), Organizations: []string{"system:nodes"}}})
	}
	return list
}

// issued is a certificate in a file of its own.
type issued struct {
	name    string
	by      string
	request pki.Request
}

func certificates(nodes []*node) []issued {
	list := []issued{
		{"etcd", "etcd-ca", pki.Request{CommonName: "etcd", Hosts: []string{"127.0.0.1", "localhost"}}},
		{"etcd-client", "etcd-ca", pki.Request{CommonName: "kube-apiserver"}},
		{"front-proxy-client", "front-proxy-ca", pki.Request{CommonName: "front-proxy-client"}},
		{"kubelet-client", "ca", pki.Request{CommonName: "kube-apiserver-kubelet-client"}},
		{"kube-apiserver", "ca", pki.Request{CommonName: "kube-apiserver", Hosts: []string{
			bridge.Address.Addr().String(), serviceOfAPI.String(), "127.0.0.1", "localhost",
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + clusterDomain,
		}}},
	}
	for _, node := range nodes {
		list = append(list, issued{"kubelet-" + node.name(), "ca",
			pki.Request{CommonName: node.name(), Hosts: []string{node.address().String(), node.name()}}})
	}
	return list
}

// writeCertificates makes new certificates and keys for each cluster, also for nodes that may join later.
func writeCertificates() error {
	nodes := nodesUpTo(maxNodes)
	if err := os.MkdirAll(pkiDir, 0o700); err != nil {
		return err
	}
	now := time.Now()
	authorities := map[string]*pki.Authority{}
	for _, name := range []string{"ca", "etcd-ca", "front-proxy-ca"} {
		authority, err := pki.NewAuthority(name, now)
		if err != nil {
			return err
		}
		authorities[name] = authority
		if err := authority.Write(pkiDir, name); err != nil {
			return err
		}
	}
	for _, one := range certificates(nodes) {
		pair, err := authorities[one.by].Issue(one.request, now)
		if err != nil {
			return err
		}
		if err := pair.Write(pkiDir, one.name); err != nil {
			return err
		}
	}
	tokens, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	if err := tokens.Write(pkiDir, "service-accounts"); err != nil {
		return err
	}
	return writeIdentities(authorities["ca"], nodes, now)
}

func writeIdentities(authority *pki.Authority, nodes []*node, now time.Time) error {
	if err := os.MkdirAll(configDir, 0o700); err != nil {
		return err
	}
	for _, who := range identities(nodes) {
		pair, err := authority.Issue(who.request, now)
		if err != nil {
			return err
		}
		if err := pki.WriteKubeconfig(who.file, name, serverURL(), who.request.CommonName, authority.Cert, pair); err != nil {
			return err
		}
	}
	return nil
}
