package members

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/drainer/contract"
)

// answersWithin bounds a question to a member, with the port-forward before it.
const answersWithin = 10 * time.Second

// Members asks the members of one Memcached.
type Members struct {
	dial  Dialer
	tls   *tls.Config
	login *contract.Login
	// ForPlan: Numbers have the size classes, too.
	ForPlan bool
}

// Of reads everything that a connection to the members of a Memcached needs: with TLS or logins, its Secrets,
// by the person's own rights. The port-forward leads to the pod. So the pod's certificate, which is for the
// members' names, is not compared with the address.
func Of(ctx context.Context, reader client.Reader, dial Dialer, m *cachev1alpha1.Memcached) (*Members, error) {
	a := &Members{dial: dial}
	if t := m.Spec.TLS; t != nil {
		a.tls = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
		if t.ClientAuth == cachev1alpha1.ClientAuthRequired {
			data, err := secret(ctx, reader, m.Namespace, t.SecretName)
			if err != nil {
				return nil, err
			}
			pair, err := tls.X509KeyPair(data[contract.CertFile], data[contract.KeyFile])
			if err != nil {
				return nil, fmt.Errorf("the certificate in Secret %s can't be used: %w", t.SecretName, err)
			}
			a.tls.Certificates = []tls.Certificate{pair}
		}
	}
	if auth := m.Spec.Auth; auth != nil {
		data, err := secret(ctx, reader, m.Namespace, auth.SecretName)
		if err != nil {
			return nil, err
		}
		logins, err := contract.Logins("Secret "+auth.SecretName, data[contract.AuthFileKey])
		if err != nil {
			return nil, err
		}
		a.login = &logins[0]
	}
	return a, nil
}

func secret(ctx context.Context, reader client.Reader, namespace, name string) (map[string][]byte, error) {
	s := &corev1.Secret{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		return nil, fmt.Errorf("the members need what is in a Secret: %w", err)
	}
	return s.Data, nil
}

// Port is where memcached listens in the pod: its container's own port, because pods are replaced one by one
// when the spec's changes.
func Port(m *cachev1alpha1.Memcached, pod *corev1.Pod) int32 {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if pod.Spec.Containers[i].Name == "memcached" && p.Name == "memcached" {
				return p.ContainerPort
			}
		}
	}
	return m.Spec.ContainerPort
}

// conn is a connection to one member.
type conn struct {
	net.Conn
	r *textproto.Reader
	b *bufio.Reader
}

func (a *Members) connect(ctx context.Context, m *cachev1alpha1.Memcached, pod *corev1.Pod) (*conn, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	raw, err := a.dial(ctx, pod, Port(m, pod))
	if err != nil {
		cancel()
		return nil, nil, err
	}
	end := func() { _ = raw.Close(); cancel() }
	if deadline, has := ctx.Deadline(); has {
		_ = raw.SetDeadline(deadline)
	}
	c := raw
	if a.tls != nil {
		t := tls.Client(raw, a.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			end()
			return nil, nil, fmt.Errorf("TLS with pod %s: %w", pod.Name, err)
		}
		c = t
	}
	b := bufio.NewReader(c)
	k := &conn{Conn: c, b: b, r: textproto.NewReader(b)}
	if a.login != nil {
		value := a.login.User + " " + a.login.Password
		line, err := k.ask(fmt.Sprintf("set auth 0 0 %d\r\n%s", len(value), value))
		if err == nil && line != "STORED" {
			err = fmt.Errorf("pod %s refuses the login of the Secret", pod.Name)
		}
		if err != nil {
			end()
			return nil, nil, err
		}
	}
	return k, end, nil
}

// ask sends a request, and returns the first line of its answer.
func (c *conn) ask(request string) (string, error) {
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return "", err
	}
	return c.r.ReadLine()
}

// Numbers are a member's.
type Numbers struct {
	Items       int64         `json:"items"`
	Bytes       int64         `json:"bytes"`
	Limit       int64         `json:"limit"`
	Hits        int64         `json:"hits"`
	Gets        int64         `json:"gets"`
	Evictions   int64         `json:"evictions"`
	Connections int64         `json:"connections"`
	Uptime      time.Duration `json:"uptime"`
	// Classes are asked for a plan only.
	Classes map[int64]controllers.Class `json:"-"`
}

// mostStatistics bounds the lines of an answer, because any server may listen at the port.
const mostStatistics = 4096

// Numbers asks the member in the pod for its numbers.
func (a *Members) Numbers(ctx context.Context, m *cachev1alpha1.Memcached, pod *corev1.Pod) (*Numbers, error) {
	c, end, err := a.connect(ctx, m, pod)
	if err != nil {
		return nil, err
	}
	defer end()
	all, err := c.statistics(pod, "")
	if err != nil {
		return nil, err
	}
	n := &Numbers{}
	uptime := int64(0)
	for name, to := range map[string]*int64{
		"curr_items": &n.Items, "bytes": &n.Bytes, "limit_maxbytes": &n.Limit, "get_hits": &n.Hits, "cmd_get": &n.Gets,
		"evictions": &n.Evictions, "curr_connections": &n.Connections, "uptime": &uptime,
	} {
		if *to, err = strconv.ParseInt(all[name], 10, 64); err != nil || *to < 0 {
			return nil, fmt.Errorf("pod %s: %.40q is no value of %s", pod.Name, all[name], name)
		}
	}
	n.Uptime = time.Duration(uptime) * time.Second
	if a.ForPlan {
		// A plan without classes is less exact, and still of use.
		slabs, _ := c.statistics(pod, "slabs")
		items, _ := c.statistics(pod, "items")
		n.Classes = controllers.Classes(slabs, items)
	}
	return n, nil
}

// Statistics returns the answer to "stats", or "stats ARG".
func (a *Members) Statistics(ctx context.Context, m *cachev1alpha1.Memcached, pod *corev1.Pod, arg string) (map[string]string, error) {
	c, end, err := a.connect(ctx, m, pod)
	if err != nil {
		return nil, err
	}
	defer end()
	return c.statistics(pod, arg)
}

func (c *conn) statistics(pod *corev1.Pod, arg string) (map[string]string, error) {
	line, err := c.ask(strings.TrimSpace("stats " + arg))
	all := map[string]string{}
	for range mostStatistics {
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "STAT "), " ")
		switch {
		case line == "END":
			return all, nil
		case !strings.HasPrefix(line, "STAT "):
			return nil, fmt.Errorf("pod %s: these are no statistics of memcached: %.80q", pod.Name, line)
		}
		all[name] = value
		line, err = c.r.ReadLine()
	}
	return nil, fmt.Errorf("pod %s: its statistics have more than %d lines", pod.Name, mostStatistics)
}

// Item is a member's value for a key.
type Item struct {
	Value []byte `json:"value"`
	Flags uint64 `json:"flags"`
	// Expires is the seconds that are left; -1 if it never expires.
	Expires int64 `json:"expires"`
}

// Get returns the member's item, nil if there is none. Get doesn't change the item's place in the LRU.
func (a *Members) Get(ctx context.Context, m *cachev1alpha1.Memcached, pod *corev1.Pod, key string) (*Item, error) {
	c, end, err := a.connect(ctx, m, pod)
	if err != nil {
		return nil, err
	}
	defer end()
	line, err := c.ask("mg " + key + " v f t u")
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	words := strings.Fields(line)
	if len(words) == 1 && words[0] == "EN" {
		return nil, nil
	}
	item := &Item{Expires: -1}
	if len(words) < 2 || words[0] != "VA" {
		return nil, fmt.Errorf("pod %s: unexpected answer %.80q", pod.Name, line)
	}
	size, err := strconv.ParseUint(words[1], 10, 31)
	if err != nil {
		return nil, fmt.Errorf("pod %s: unexpected answer %.80q", pod.Name, line)
	}
	for _, w := range words[2:] {
		switch w[0] {
		case 'f':
			item.Flags, _ = strconv.ParseUint(w[1:], 10, 64)
		case 't':
			item.Expires, _ = strconv.ParseInt(w[1:], 10, 64)
		}
	}
	value := &bytes.Buffer{}
	if _, err := io.CopyN(value, c.b, int64(size)); err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	item.Value = value.Bytes()
	return item, nil
}

// Touch sets when the member's item expires, in seconds from now, 0 for never, and returns false if there is no item.
func (a *Members) Touch(ctx context.Context, m *cachev1alpha1.Memcached, pod *corev1.Pod, key string, seconds int64) (bool, error) {
	return a.change(ctx, m, pod, fmt.Sprintf("touch %s %d", key, seconds), "TOUCHED")
}

// Delete deletes the member's item, and returns false if there is none.
func (a *Members) Delete(ctx context.Context, m *cachev1alpha1.Memcached, pod *corev1.Pod, key string) (bool, error) {
	return a.change(ctx, m, pod, "delete "+key, "DELETED")
}

func (a *Members) change(ctx context.Context, m *cachev1alpha1.Memcached, pod *corev1.Pod, request, done string) (bool, error) {
	c, end, err := a.connect(ctx, m, pod)
	if err != nil {
		return false, err
	}
	defer end()
	line, err := c.ask(request)
	switch {
	case err != nil:
		return false, fmt.Errorf("pod %s: %w", pod.Name, err)
	case line == done:
		return true, nil
	case line == "NOT_FOUND":
		return false, nil
	}
	return false, fmt.Errorf("pod %s: unexpected answer %.80q", pod.Name, line)
}

// CheckKey returns why memcached's text protocol takes no such key.
func CheckKey(key string) error {
	const longest = 250
	if key == "" || len(key) > longest || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("%.60q is no key: memcached takes 1 to %d bytes without blanks and control characters", key, longest)
	}
	return nil
}
