package build

import (
	"encoding/json"
	"fmt"
	"strings"

	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/routing"
)

// Keys of the servers' list, in its ConfigMap and in the Secret of spec.binding.
const (
	// ServersKey has one host:port per line.
	ServersKey = "servers"
	// ServersJSONKey has the same as a JSON array of strings.
	ServersJSONKey = "servers.json"
	// ServersEnvKey has the same, separated by commas. Dalli and memjs read this name and form from
	// the environment.
	ServersEnvKey = "MEMCACHE_SERVERS"
)

// IsServersKey tells whether the key of a ConfigMap is one of the lists' keys.
func IsServersKey(key string) bool {
	return key == ServersKey || key == ServersJSONKey || key == ServersEnvKey
}

// ServersName is the name of the ConfigMap with the list of the servers.
func ServersName(cluster string) string { return cluster + "-servers" }

// Servers are the host:port by which clients call the first n members, in ring order.
func Servers(c *cachev1alpha1.Memcached, ports Ports, n int32) []string {
	ports = ports.listed(c)
	servers := make([]string, n)
	for i := range n {
		servers[i] = fmt.Sprintf("%s:%d", memberHost(c, i), ports.Of(c, i).Memcached)
	}
	return servers
}

// OtherServers tells whether a ConfigMap has other servers than these.
func OtherServers(data map[string]string, servers []string) bool {
	return data[ServersKey] != serverLists(servers)[ServersKey]
}

// RingOf is the ring of the first n members.
func RingOf(c *cachev1alpha1.Memcached, n int32) ring.Ring {
	r := &c.Spec.Routing
	return ring.Ring{
		Client: r.RingClient(), KeyPrefix: r.KeyPrefix, ServerName: serverName(c), Port: c.Spec.ContainerPort, Size: n,
		Stable: Stable(c) && routing.HashesAddresses(string(r.Client)),
	}
}

// ServersConfigMap is the clients' list, in the forms that applications read. For a cluster with
// storage it also has the record of the rings.
func ServersConfigMap(c *cachev1alpha1.Memcached, servers []string, record ring.Record) *coreac.ConfigMapApplyConfiguration {
	list := coreac.ConfigMap(ServersName(c.Name), c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentMember)).
		WithOwnerReferences(owner(c)).
		WithData(serverLists(servers))
	if c.Spec.Storage != nil {
		list.WithAnnotations(map[string]string{cachev1alpha1.AnnotationRing: record.String()})
	}
	return list
}

// serverLists has the servers in each form.
func serverLists(servers []string) map[string]string {
	array, _ := json.Marshal(servers) // strings can always be marshalled
	lines := ""
	for _, s := range servers {
		lines += s + "\n"
	}
	return map[string]string{
		ServersKey:     lines,
		ServersJSONKey: string(array),
		ServersEnvKey:  strings.Join(servers, ","),
	}
}
