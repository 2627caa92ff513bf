// Command coredns is CoreDNS with only the plugins that a test cluster uses.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// A query passes through the plugins in this order.
	dnsserver.Directives = []string{"bind", "ready", "errors", "loadbalance", "cache", "kubernetes", "forward"}
	coremain.Run()
}
