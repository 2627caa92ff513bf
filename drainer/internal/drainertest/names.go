package drainertest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// names that lead where a test wants, by the names with a dot at the end.
var names sync.Map

var named atomic.Int64

// AnswerNames lets this process's resolver know Names. Call AnswerNames before any name is looked up.
func AnswerNames() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		asks, answers := net.Pipe()
		go func() {
			defer answers.Close()
			for answerName(answers) == nil {
			}
		}()
		return asks, nil
	}}
}

// Name leads to an address that a test may change.
type Name string

// NewName returns a Name that leads to the address. AnswerNames has to be called before.
func NewName(t *testing.T, address string) Name {
	n := Name(fmt.Sprintf("name-%d.example.", named.Add(1)))
	n.To(address)
	t.Cleanup(func() { names.Delete(string(n)) })
	return n
}

// To lets the name lead to another address.
func (n Name) To(address string) { names.Store(string(n), netip.MustParseAddr(address)) }

// answerName answers a question, as DNS does by TCP.
func answerName(c net.Conn) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	text := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, text); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(text); err != nil {
		return err
	}
	m.Response, m.Additionals = true, nil
	m.RCode = dnsmessage.RCodeNameError
	q := m.Questions[0]
	if at, is := names.Load(q.Name.String()); is {
		m.RCode = dnsmessage.RCodeSuccess
		if address := at.(netip.Addr); q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
				Body: &dnsmessage.AResource{A: address.As4()}})
		}
	}
	answer, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	return err
}
