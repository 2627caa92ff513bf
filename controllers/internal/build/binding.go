package build

import (
	"net"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// Keys of the Secret of spec.binding, beside the servers' and contract.CAFile: those
// that servicebinding.io gives a meaning to.
const (
	BindingType     = "type"
	BindingProvider = "provider"
	BindingHost     = "host"
	BindingPort     = "port"
	BindingUsername = "username"
	BindingPassword = "password"
)

// BindingSecretType is what servicebinding.io makes of BindingType.
const BindingSecretType corev1.SecretType = "servicebinding.io/memcached"

// Binding is the Secret that spec.binding asks for: where the members are, the login,
// nil without auth, and the authorities that vouch for their certificates, nil without
// TLS. Host and port are the first member's: all of a cluster of one, and of one
// without storage, and a name that the members' certificate is for.
func Binding(c *cachev1alpha1.Memcached, servers []string, login *contract.Login, authorities []byte) *coreac.SecretApplyConfiguration {
	host, port, _ := net.SplitHostPort(ClientServers(c, 1)[0])
	data := map[string][]byte{
		BindingType:     []byte("memcached"),
		BindingProvider: []byte(cachev1alpha1.ManagedBy),
		BindingHost:     []byte(host),
		BindingPort:     []byte(port),
	}
	for key, list := range serverLists(servers) {
		data[key] = []byte(list)
	}
	if login != nil {
		data[BindingUsername], data[BindingPassword] = []byte(login.User), []byte(login.Password)
	}
	if authorities != nil {
		data[contract.CAFile] = authorities
	}
	return coreac.Secret(c.Spec.Binding.SecretName, c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentMember)).
		WithOwnerReferences(owner(c)).
		WithType(BindingSecretType).
		WithData(data)
}
