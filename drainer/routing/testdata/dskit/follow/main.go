// Command follow is the client of test/integration's TestDskitFollowsByDNS: dskit's own resolver and
// selector. Whenever it reads a line, it asks the name server FIRST for the addresses SECOND, and prints the
// servers that it then uses.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/go-kit/log/level"

	kitlog "github.com/go-kit/log"
	"github.com/grafana/dskit/cache"
	"github.com/grafana/dskit/dns"
)

func main() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, os.Args[1])
	}}
	logger := level.NewFilter(kitlog.NewLogfmtLogger(os.Stderr), level.AllowWarn())
	provider := dns.NewProvider(dns.GolangResolverType, 1, logger, nil)
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		if err := provider.Resolve(context.Background(), []string{os.Args[2]}); err != nil {
			fmt.Println(err)
			continue
		}
		servers := provider.Addresses()
		var selector cache.MemcachedJumpHashSelector
		if err := selector.SetServers(servers...); err != nil {
			fmt.Println(err)
			continue
		}
		var used []string
		if err := selector.Each(func(a net.Addr) error {
			used = append(used, a.String())
			return nil
		}); err != nil {
			log.Fatal(err)
		}
		slices.Sort(servers)
		fmt.Println(strings.Join(servers, " "), "=", strings.Join(used, " "))
	}
}
