// Command exporter stands in for Prometheus' memcached_exporter, which is to be had
// as an image of a registry only: it takes the arguments that the operator gives
// that one, and serves two of its metrics.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
)

func main() {
	memcached := flag.String("memcached.address", "localhost:11211", "the memcached to ask")
	listen := flag.String("web.listen-address", ":9150", "address of the metrics")
	flag.Parse()
	http.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		items, err := currentItems(*memcached)
		if err != nil {
			log.Print(err)
			fmt.Fprintln(w, "memcached_up 0")
			return
		}
		fmt.Fprintf(w, "memcached_up 1\nmemcached_current_items %s\n", items)
	})
	server := &http.Server{Addr: *listen, ReadHeaderTimeout: time.Second}
	log.Fatal(server.ListenAndServe())
}

// currentItems is what memcached's stats say.
func currentItems(address string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprint(conn, "stats\r\n"); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if items, ok := strings.CutPrefix(lines.Text(), "STAT curr_items "); ok {
			return items, nil
		}
	}
	return "", errors.Join(fmt.Errorf("%s doesn't say how many items it has", address), lines.Err())
}
