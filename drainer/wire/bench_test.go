package wire_test

import (
	"testing"

	"example.com/memcached-operator/drainer/wire"
)

// BenchmarkForward does a router's work for a request and its answer.
func BenchmarkForward(b *testing.B) {
	for _, line := range []string{"set some-key-of-35-bytes-as-they-are-00 0 0 200", "incr some-key 5", "mg some-key-of-35-bytes-as-they-are-00 v", "mg some-key t v f c k Oabcdef q", "ms some-key 200 T3600 F7 q", "mg c29tZS1rZXktb2YtMzUtYnl0ZXM= b v"} {
		b.Run(line, func(b *testing.B) {
			text := []byte(line + "\r\n")
			var r wire.Request
			var room [wire.MaxKey]byte
			dst := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				r.Parse(text)
				r.Hashed(&room)
				dst = r.AppendTo(dst[:0])
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	text := []byte("get some-key-of-35-bytes-as-they-are-00\r\n")
	var r wire.Request
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		r.Parse(text)
		dst = r.AppendRead(dst[:0], r.NextKey())
	}
}

func BenchmarkAnswer(b *testing.B) {
	for _, test := range []struct {
		kind wire.Kind
		verb wire.Verb
		line string
	}{{wire.Values, wire.Get, "VALUE some-key-of-35-bytes-as-they-are-00 0 200"}, {wire.MetaValue, wire.MetaGet, "VA 200 t3600 f7"}, {wire.OneLine, wire.Set, "STORED"}} {
		b.Run(test.line, func(b *testing.B) {
			text := []byte(test.line + "\r\n")
			var a wire.Answer
			b.ReportAllocs()
			for b.Loop() {
				a.Parse(test.kind, text)
				a.Fits(test.kind, test.verb)
			}
		})
	}
}
