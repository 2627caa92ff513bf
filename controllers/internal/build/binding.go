package build

import (
	"net"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// Keys of the Secret of spec.binding that servicebinding.io defines. The Secret also has the server
// lists and contract.CAFile.
const (
	BindingType     = "type"
	BindingProvider = "provider"
	BindingHost     = "host"
	BindingPort     = "port"
	BindingUsername = "username"
	BindingPassword = "password"
)

// BindingSecretType is the type that servicebinding.io derives from BindingType.
const BindingSecretType corev1.SecretType = "servicebinding.io/memcached"

// Binding is the Secret that spec.binding asks for: where the members are, the login (nil without auth), and
// the authorities that signed their certificates (nil without TLS). Host and port are the first member's,
// which is enough for a cluster of one member. The members' certificate covers that name.
func Binding(c *cachev1alpha1.Memcached, servers []string, login *contract.Login, authorities []byte) *coreac.SecretApplyConfiguration {
	first := Servers(c, nil, 1)[0]
	if len(servers) > 0 {
		first = servers[0]
	}
	host, port, _ := net.SplitHostPort(first)
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
