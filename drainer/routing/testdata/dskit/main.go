// Command dskit implements peer.py's protocol and answers by Grafana dskit's MemcachedJumpHashSelector. The
// command is a separate module, so that dskit's dependencies aren't the operator's.
package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/grafana/dskit/cache"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	var lists [][]string
	for in.Scan() && in.Text() != "" {
		lists = append(lists, strings.Fields(in.Text()))
	}
	var keys []string
	for in.Scan() {
		key, err := base64.StdEncoding.DecodeString(in.Text())
		if err != nil {
			log.Fatal(err)
		}
		keys = append(keys, string(key))
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, list := range lists {
		from, to := number(list[0]), number(list[1])
		list = list[2:]
		var selector cache.MemcachedJumpHashSelector
		if err := selector.SetServers(list...); err != nil {
			log.Fatal(err)
		}
		index := map[string]int{}
		for i, server := range list {
			index[server] = i
		}
		for _, key := range keys[from:to] {
			addr, err := selector.PickServer(key)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Fprint(out, index[addr.String()], " ")
		}
		fmt.Fprintln(out)
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		log.Fatal(err)
	}
	return n
}
