// Command exporter replaces Prometheus' memcached_exporter, which only a registry has, as an image. It takes
// the arguments that the operator gives to an exporter, and serves two of the metrics.
package main

import (
	"bufio"
	"crypto/tls"
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
	secured := flag.Bool("memcached.tls.enable", false, "ask it by TLS")
	flag.Bool("memcached.tls.insecure-skip-verify", false, "its certificate is not checked in any case")
	certificate := flag.String("memcached.tls.cert-file", "", "shown to it")
	key := flag.String("memcached.tls.key-file", "", "of the certificate")
	flag.Parse()
	http.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		items, err := currentItems(func() (net.Conn, error) {
			dialer := &net.Dialer{Timeout: patience}
			if *secured {
				return tls.DialWithDialer(dialer, "tcp", *memcached, config(*certificate, *key))
			}
			return dialer.Dial("tcp", *memcached)
		})
		if err != nil {
			log.Print(err)
			fmt.Fprintln(w, "memcached_up 0")
			return
		}
		fmt.Fprintf(w, "memcached_up 1\nmemcached_current_items %s\n", items)
	})
	server := &http.Server{Addr: *listen, ReadHeaderTimeout: patience}
	log.Fatal(server.ListenAndServe())
}

// patience bounds the wait for a busy memcached.
const patience = time.Minute

func config(certificate, key string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		return &pair, err
	}}
}

// currentItems returns curr_items of memcached's stats.
func currentItems(dial func() (net.Conn, error)) (string, error) {
	conn, err := dial()
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
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
	return "", errors.Join(errors.New("memcached doesn't say how many items it has"), lines.Err())
}
