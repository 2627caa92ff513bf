package router_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/tier"
)

// The opcodes of the binary protocol.
const (
	opGet = iota
	opSet
	opAdd
	opReplace
	opDelete
	opIncrement
	opDecrement
	opQuit
	opFlush
	opGetQ
	opNoop
	opVersion
	opGetK
	opGetKQ
	opAppend
	opPrepend
	opStat
	opSetQ
	opAddQ
	opReplaceQ
	opDeleteQ
	opIncrementQ
	opDecrementQ
	opQuitQ
	opFlushQ
	opAppendQ
	opPrependQ
	opVerbosity
	opTouch
	opGat
	opGatQ
	opMechanisms = iota + 1
	opLogin
	opLoginStep
	opGatK
	opGatKQ
)

// packet is a packet of the binary protocol.
type packet struct {
	opcode, dataType byte
	status           uint16
	opaque           uint32
	cas              uint64
	extras           string
	key, value       string
}

// bytes returns the bytes of a request.
func (p packet) bytes() string {
	b := binary.BigEndian.AppendUint16([]byte{0x80, p.opcode}, uint16(len(p.key)))
	b = binary.BigEndian.AppendUint16(append(b, byte(len(p.extras)), p.dataType), p.status)
	b = binary.BigEndian.AppendUint32(b, uint32(len(p.extras)+len(p.key)+len(p.value)))
	b = binary.BigEndian.AppendUint32(b, p.opaque)
	return string(binary.BigEndian.AppendUint64(b, p.cas)) + p.extras + p.key + p.value
}

func (p packet) String() string {
	return fmt.Sprintf("{opcode %#x, status %#x, opaque %#x, cas %d, extras %q, key %.300q, value %.300q}", p.opcode, p.status, p.opaque, p.cas, p.extras, p.key, p.value)
}

func readPacket(r *bufio.Reader) (p packet, err error) {
	var head [24]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return p, err
	}
	if head[0] != 0x81 {
		return p, fmt.Errorf("a packet begins with %q", head)
	}
	p = packet{
		opcode: head[1], dataType: head[5], status: binary.BigEndian.Uint16(head[6:]),
		opaque: binary.BigEndian.Uint32(head[12:]), cas: binary.BigEndian.Uint64(head[16:]),
	}
	body := make([]byte, binary.BigEndian.Uint32(head[8:]))
	if _, err := io.ReadFull(r, body); err != nil {
		return p, err
	}
	extras, key := int(head[4]), int(binary.BigEndian.Uint16(head[2:]))
	p.extras, p.key, p.value = string(body[:extras]), string(body[extras:extras+key]), string(body[extras+key:])
	return p, nil
}

func u32(n ...uint32) string {
	var b []byte
	for _, n := range n {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return string(b)
}

func u64(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// stored returns a request with a value.
func stored(opcode byte, key, value string, flags, expiration uint32, cas uint64) packet {
	return packet{opcode: opcode, key: key, value: value, extras: u32(flags, expiration), cas: cas}
}

func counted(opcode byte, key string, delta, initial uint64, expiration uint32) packet {
	return packet{opcode: opcode, key: key, extras: u64(delta) + u64(initial) + u32(expiration)}
}

// said returns the answers; closed tells whether the connection was closed after them.
func (c *conversation) said(requests string) (all []packet, closed bool) {
	c.t.Helper()
	const last = 0x6c617374
	c.say(requests + packet{opcode: opNoop, opaque: last}.bytes())
	for {
		p, err := readPacket(c.r)
		switch {
		case errors.Is(err, io.EOF) || err != nil && strings.Contains(err.Error(), "reset"):
			return all, true
		case err != nil:
			c.t.Fatalf("after %v: %v", all, err)
		case p.opaque == last && p.status == 0:
			return all, false
		}
		all = append(all, p)
	}
}

// one returns the only answer to a request.
func (c *conversation) one(p packet) packet {
	c.t.Helper()
	all, closed := c.said(p.bytes())
	if len(all) != 1 || closed {
		c.t.Fatalf("%v: %v, closed: %v", p, all, closed)
	}
	return all[0]
}

// pair has two connections: to a memcached, and to a router.
type pair struct {
	t              *testing.T
	direct, routed func() *conversation
	d, r           *conversation
}

func newPair(t *testing.T, direct, routed string) *pair {
	p := &pair{t: t, direct: func() *conversation { return dial(t, direct) }, routed: func() *conversation { return dial(t, routed) }}
	p.d, p.r = p.direct(), p.routed()
	return p
}

// same sends the same packets to both, and compares the answers. A CAS value of 1 stands for that of the
// key's item.
func (b *pair) same(name string, requests ...packet) {
	b.t.Helper()
	text := func(c *conversation) string {
		var s strings.Builder
		for _, p := range requests {
			if p.cas == 1 {
				p.cas = c.one(packet{opcode: opGet, key: p.key}).cas
			}
			s.WriteString(p.bytes())
		}
		return s.String()
	}
	b.sameBytes(name, text(b.d), text(b.r))
}

func (b *pair) sameBytes(name, direct, routed string) {
	b.t.Helper()
	want, ended := b.d.said(direct)
	got, closed := b.r.said(routed)
	if g, w := comparable(got), comparable(want); g != w || closed != ended {
		b.t.Fatalf("%s: %.500q:\nthe router answers %s (closed: %v),\nmemcached %s (closed: %v)", name, routed, g, closed, w, ended)
	}
	if ended {
		b.d, b.r = b.direct(), b.routed()
	}
}

// comparable returns packets without what differs between servers.
func comparable(all []packet) string {
	var s strings.Builder
	for _, p := range all {
		p.cas = min(p.cas, 1)
		fmt.Fprintln(&s, p)
	}
	return s.String()
}

// A memcached and a router give the same answers to the same packets.
func TestTheRouterAnswersBinaryClientsAsMemcachedDoes(t *testing.T) {
	t.Parallel()
	both := members(t, 2)
	b := newPair(t, both[0].Address(), start(t, router.Config{}, both[1]).address)
	large := strings.Repeat("v", 500_000)
	never, past := uint32(0), uint32(math.MaxInt32/2)
	set := func(key, value string) packet { return stored(opSet, key, value, 7, 0, 0) }
	read := func(key string) packet { return packet{opcode: opGetK, key: key, opaque: 9} }
	for _, test := range []struct {
		name     string
		requests []packet
	}{
		{"get", []packet{{opcode: opGet, key: "a", opaque: 0xdeadbeef}, set("a", "abc"), {opcode: opGet, key: "a", opaque: 0xdeadbeef}}},
		{"getk", []packet{read("a"), read("b")}},
		{"getq", []packet{{opcode: opGetQ, key: "a", opaque: 1}, {opcode: opGetQ, key: "b", opaque: 2}, {opcode: opGetKQ, key: "a", opaque: 3}, {opcode: opGetKQ, key: "b", opaque: 4}}},
		{"an empty value", []packet{set("empty", ""), read("empty"), {opcode: opGet, key: "empty"}}},
		{"add", []packet{stored(opAdd, "a", "x", 1, 0, 0), stored(opAdd, "added", "x", 1, 0, 0), read("added"), stored(opAddQ, "a", "x", 0, 0, 0), stored(opAddQ, "added2", "x", 0, 0, 0)}},
		{"replace", []packet{stored(opReplace, "a", "y", 2, 0, 0), read("a"), stored(opReplace, "nope", "y", 2, 0, 0), stored(opReplaceQ, "nope", "y", 2, 0, 0), stored(opReplaceQ, "a", "z", 3, 0, 0), read("a")}},
		{"set with cas", []packet{stored(opSet, "a", "1", 0, 0, 1), read("a"), stored(opSet, "a", "2", 0, 0, 99999999), stored(opSet, "nope", "2", 0, 0, 99999999), stored(opSetQ, "a", "3", 0, 0, 99999999), stored(opSetQ, "nope", "3", 0, 0, 99999999)}},
		{"quiet set with cas", []packet{stored(opSetQ, "a", "4", 0, 0, 1), read("a")}},
		{"add with cas", []packet{stored(opAdd, "a", "5", 0, 0, 1), read("a"), stored(opAdd, "a", "6", 0, 0, 99999999), stored(opAdd, "nope", "6", 0, 0, 99999999)}},
		{"replace with cas", []packet{stored(opReplace, "a", "7", 0, 0, 1), read("a"), stored(opReplace, "a", "8", 0, 0, 99999999), stored(opReplace, "nope", "8", 0, 0, 99999999)}},
		{"append", []packet{{opcode: opAppend, key: "a", value: "de"}, {opcode: opPrepend, key: "a", value: "--"}, read("a"), {opcode: opAppendQ, key: "a", value: "f"}, {opcode: opPrependQ, key: "a", value: "-"}, read("a"), {opcode: opAppend, key: "a"}}},
		{"append to nothing", []packet{{opcode: opAppend, key: "nope", value: "x"}, {opcode: opPrepend, key: "nope", value: "x"}, {opcode: opAppendQ, key: "nope", value: "x"}, {opcode: opPrependQ, key: "nope", value: "x", cas: 5}}},
		{"append with cas", []packet{{opcode: opAppend, key: "a", value: "g", cas: 1}, read("a"), {opcode: opPrepend, key: "a", value: "x", cas: 99999999}, read("a")}},
		{"delete", []packet{{opcode: opDelete, key: "added"}, {opcode: opDelete, key: "added"}, {opcode: opDeleteQ, key: "added2"}, {opcode: opDeleteQ, key: "added2"}, read("added2")}},
		{"delete with cas", []packet{set("a", "x"), {opcode: opDelete, key: "a", cas: 99999999}, {opcode: opDelete, key: "nope", cas: 99999999}}},
		{"delete with the item's cas", []packet{{opcode: opDelete, key: "a", cas: 1}, read("a")}},
		{"increment", []packet{set("n", "5"), counted(opIncrement, "n", 5, 0, 0), counted(opDecrement, "n", 1, 0, 0), counted(opDecrement, "n", 100, 0, 0), read("n"), counted(opIncrementQ, "n", 7, 0, 0), counted(opDecrementQ, "n", 1, 0, 0), counted(opIncrement, "n", 0, 0, 0)}},
		{"increment makes an item", []packet{counted(opIncrement, "made", 5, 13, 0), read("made"), counted(opIncrement, "made", 5, 13, 0), counted(opDecrement, "made2", 5, math.MaxUint64, 100), counted(opIncrement, "made2", 1, 0, 0), counted(opIncrementQ, "made3", 5, 14, 0), read("made3")}},
		{"increment makes no item", []packet{counted(opIncrement, "nope", 5, 13, math.MaxUint32), counted(opDecrementQ, "nope", 5, 13, math.MaxUint32), read("nope")}},
		{"increment around the end", []packet{set("n", fmt.Sprint(uint64(math.MaxUint64))), counted(opIncrement, "n", 2, 0, 0), counted(opIncrement, "n", math.MaxUint64, 0, 0)}},
		{"increment with cas", []packet{{opcode: opIncrement, key: "n", extras: u64(1) + u64(0) + u32(0), cas: 1}, {opcode: opIncrement, key: "n", extras: u64(1) + u64(0) + u32(0), cas: 99999999}, {opcode: opIncrement, key: "nope", extras: u64(1) + u64(0) + u32(math.MaxUint32), cas: 99999999}}},
		{"increment no number", []packet{set("a", "abc"), counted(opIncrement, "a", 1, 0, 0), counted(opDecrementQ, "a", 1, 0, 0), counted(opIncrement, "empty", 1, 0, 0)}},
		{"touch", []packet{{opcode: opTouch, key: "a", extras: u32(100)}, {opcode: opTouch, key: "nope", extras: u32(100)}, {opcode: opTouch, key: "a", extras: u32(never)}}},
		{"get and touch", []packet{{opcode: opGat, key: "a", extras: u32(100)}, {opcode: opGat, key: "nope", extras: u32(100)}, {opcode: opGatQ, key: "a", extras: u32(100)}, {opcode: opGatQ, key: "nope", extras: u32(100)}, {opcode: opGatK, key: "a", extras: u32(100)}, {opcode: opGatK, key: "nope", extras: u32(100)}, {opcode: opGatKQ, key: "a", extras: u32(100)}, {opcode: opGatKQ, key: "nope", extras: u32(100)}}},
		{"expirations", []packet{
			stored(opSet, "e1", "x", 0, past, 0), read("e1"), stored(opSet, "e2", "x", 0, math.MaxUint32, 0), read("e2"), stored(opSet, "e3", "x", 0, 1<<31, 0), read("e3"),
			stored(opSet, "e4", "x", 0, 30*24*3600, 0), read("e4"), stored(opSet, "e5", "x", 0, 30*24*3600+1, 0), read("e5"), stored(opSet, "e6", "x", 0, uint32(time.Now().Unix()+100), 0), read("e6"),
			{opcode: opTouch, key: "e2", extras: u32(math.MaxUint32)}, read("e2"), {opcode: opTouch, key: "e2", extras: u32(past)}, read("e2"),
			{opcode: opGat, key: "e3", extras: u32(1 << 31)}, read("e3"), {opcode: opGat, key: "e3", extras: u32(past)}, read("e3"),
			counted(opIncrement, "e7", 1, 1, past), counted(opIncrement, "e7", 1, 1, math.MaxUint32-1), counted(opIncrement, "e7", 1, 1, 0),
		}},
		{"flags", []packet{stored(opSet, "f", "x", math.MaxUint32, 0, 0), read("f"), {opcode: opTouch, key: "f", extras: u32(0)}}},
		{"any bytes in a key", []packet{set("a b\r\nc\x00\xff", "x"), read("a b\r\nc\x00\xff"), {opcode: opAppend, key: "a b\r\nc\x00\xff", value: "y"}, {opcode: opGatK, key: "a b\r\nc\x00\xff", extras: u32(5)}, {opcode: opDelete, key: "a b\r\nc\x00\xff"}, counted(opIncrement, "\n", 1, 5, 0), counted(opIncrement, "\n", 1, 5, 0), set("\x80ké\u00a0", "z"), read("\x80ké\u00a0")}},
		{"a long key", []packet{set(strings.Repeat("k", 250), "x"), read(strings.Repeat("k", 250)), set(strings.Repeat(" ", 186), "x"), read(strings.Repeat(" ", 186))}},
		{"a key that is too long", []packet{set(strings.Repeat("k", 251), "x")}},
		{"any bytes in a value", []packet{set("v", "a\r\nb\x00\xff\r\n"), read("v")}},
		{"a large value", []packet{set("large", large), read("large"), {opcode: opGetQ, key: "large"}, {opcode: opAppend, key: "large", value: "end"}, read("large")}},
		{"a value that is too large", []packet{set("a", strings.Repeat("v", 1_100_000)), read("a"), stored(opAddQ, "huge", strings.Repeat("v", 1_100_000), 0, 0, 0), {opcode: opAppend, key: "nope", value: strings.Repeat("v", 1_100_000)}}},
		{"append too much", []packet{{opcode: opAppend, key: "large", value: strings.Repeat("v", 600_000)}, read("large")}},
		{"noop", []packet{{opcode: opNoop, opaque: 5}}},
		{"version", []packet{{opcode: opVersion, opaque: 5}}},
		{"flush", []packet{set("a", "x"), {opcode: opFlush, opaque: 5}, read("a"), set("a", "y"), {opcode: opFlushQ, extras: u32(0)}, read("a"), {opcode: opFlush, extras: u32(100)}, {opcode: opFlush}}},
		{"unknown", []packet{{opcode: 0x50, opaque: 5}, {opcode: 0x50, value: "some value"}, {opcode: 0xff, value: large}, {opcode: opVerbosity}, read("a")}},
		{"no logins", []packet{{opcode: opMechanisms}, {opcode: opLogin, key: "PLAIN", value: "\x00user\x00password"}, {opcode: opLoginStep, key: "PLAIN", value: "x"}, read("a")}},
		{"statistics of an unknown kind", []packet{{opcode: opStat, key: "nope"}, {opcode: opStat, key: "reset"}}},
		{"quit", []packet{{opcode: opQuit, opaque: 5}}},
		{"quiet quit", []packet{read("a"), {opcode: opQuitQ, opaque: 5}}},
		{"get without a key", []packet{read("b"), {opcode: opGet}}},
		{"get with a value", []packet{{opcode: opGet, key: "a", value: "x"}}},
		{"get with extras", []packet{{opcode: opGet, key: "a", extras: "1234"}}},
		{"set without extras", []packet{{opcode: opSet, key: "a", value: "x"}}},
		{"set without a key", []packet{{opcode: opSet, value: "x", extras: u32(0, 0)}}},
		{"quiet set without extras", []packet{{opcode: opSetQ, key: "a", value: "x"}}},
		{"append with extras", []packet{{opcode: opAppend, key: "a", extras: "12345678"}}},
		{"delete with extras", []packet{{opcode: opDelete, key: "a", extras: "1234"}}},
		{"increment with few extras", []packet{{opcode: opIncrement, key: "a", extras: "1234"}}},
		{"touch without extras", []packet{{opcode: opTouch, key: "a"}}},
		{"noop with a body", []packet{{opcode: opNoop, value: "x"}}},
		{"version with a key", []packet{{opcode: opVersion, key: "x"}}},
		{"quit with a body", []packet{{opcode: opQuit, value: "x"}}},
		{"flush with a key", []packet{{opcode: opFlush, key: "x"}}},
		{"statistics with extras", []packet{{opcode: opStat, extras: "1234"}}},
		{"another data type", []packet{{opcode: opGet, dataType: 5, key: "a"}, {opcode: opGet, status: 77, key: "a"}}},
	} {
		b.same(test.name, test.requests...)
	}
	falseLengths := func(opcode, key, extras, body byte) string {
		return string([]byte{0x80, opcode, 0, key, extras, 0, 0, 0, 0, 0, 0, body, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	}
	for name, text := range map[string]string{
		"a key longer than its body":     falseLengths(opGet, 5, 0, 2) + "abcde",
		"extras longer than their body":  falseLengths(opSet, 1, 8, 5) + "12345678a",
		"a get that becomes text":        packet{opcode: opGet, key: "a"}.bytes() + "get a\r\n" + strings.Repeat(" ", 40),
		"an answer in place of requests": "\x81" + packet{opcode: opGet, key: "a"}.bytes()[1:],
	} {
		if name == "an answer in place of requests" {
			b.same("first a binary request", read("a"))
		}
		b.sameBytes(name, text, text)
	}
}

// The same holds for random requests, in pieces of any size, and several at once.
func TestBinaryClientsGetTheSameAnswersAtRandom(t *testing.T) {
	tier.Second(t, "TestTheRouterAnswersBinaryClientsAsMemcachedDoes")
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	all := members(t, 4)
	b := newPair(t, all[0].Address(), start(t, router.Config{}, all[1:]...).address)
	sameBinaryAtRandom(b, random, rounds(2000), anyPacket)
}

func sameBinaryAtRandom(b *pair, random *rand.Rand, rounds int, request func(*rand.Rand) packet) {
	b.t.Helper()
	for round := range rounds {
		var text strings.Builder
		for range 1 + random.IntN(20) {
			text.WriteString(request(random).bytes())
		}
		requests := text.String()
		if round%10 == 0 {
			for s := requests; len(s) > 0; {
				n := min(len(s), 1+random.IntN(40))
				b.r.say(s[:n])
				s = s[n:]
			}
			b.sameBytes(fmt.Sprintf("round %d", round), requests, "")
			continue
		}
		b.sameBytes(fmt.Sprintf("round %d", round), requests, requests)
	}
}

// anyPacket returns a request that is carried out, or refused without closing the connection.
func anyPacket(random *rand.Rand) packet {
	pick := func(of ...byte) byte { return of[random.IntN(len(of))] }
	p := packet{opaque: random.Uint32(), key: []string{"a", "b", "c", "d", "e f", "key-1", "key\n2", "\x00\xff"}[random.IntN(8)]}
	if random.IntN(6) == 0 {
		p.cas = 99999999999
	}
	expiration := []uint32{0, 0, 1000, 1 << 31, math.MaxUint32, 5_000_000}[random.IntN(6)]
	value := []string{"", "1", "17", "x", "some value", strings.Repeat("large ", random.IntN(3000))}[random.IntN(6)]
	switch random.IntN(12) {
	case 0, 1, 2:
		p.opcode = pick(opGet, opGetQ, opGetK, opGetKQ)
	case 3, 4, 5:
		p.opcode, p.extras, p.value = pick(opSet, opSetQ, opAdd, opAddQ, opReplace, opReplaceQ), u32(random.Uint32(), expiration), value
	case 6:
		p.opcode, p.value = pick(opAppend, opAppendQ, opPrepend, opPrependQ), value
	case 7:
		p.opcode = pick(opDelete, opDeleteQ)
	case 8:
		// A decrement of 10 gives "9" or "9 ", depending on other readers of the item. So does an increment
		// of 09.
		delta := random.Uint64N(20)
		if p.opcode = pick(opIncrement, opIncrementQ, opDecrement, opDecrementQ); p.opcode == opDecrement || p.opcode == opDecrementQ {
			delta = 0
		}
		p.extras = u64(delta) + u64(1+random.Uint64N(20)) + u32(expiration)
	case 9:
		p.opcode, p.extras = pick(opTouch, opGat, opGatQ, opGatK, opGatKQ), u32(expiration)
	case 10:
		p.opcode, p.key = pick(opNoop, opVersion), ""
	default:
		p.opcode, p.key, p.value = pick(0x40, opVerbosity, 0xfe), "", value
	}
	return p
}

// changeablePacket returns a request that has the same answer during a ring change. That excludes a counter
// with a CAS value, which is not made then if it doesn't exist.
func changeablePacket(random *rand.Rand) packet {
	p := anyPacket(random)
	if len(p.extras) == 20 {
		p.cas = 0
	}
	return p
}

// The same holds in every state of a ring change, if all keys have another owner.
func TestBinaryClientsGetTheSameAnswersInAChange(t *testing.T) {
	t.Parallel()
	for state := ringchange.Prepare; state <= ringchange.Finish; state++ {
		t.Run(state.String(), func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			all := members(t, 3)
			r := start(t, router.Config{}, all[1])
			b := newPair(t, all[0].Address(), r.address)
			if state != ringchange.Finish {
				sameBinaryAtRandom(b, random, 50, changeablePacket)
			}
			table := &router.Table{Number: 1, State: state, Old: ring(t, all[1]), New: ring(t, all[2])}
			enter(t, r, table)
			b.same("cas", stored(opSet, "swapped", "1", 0, 0, 0))
			b.same("cas", stored(opSet, "swapped", "2", 0, 0, 1), packet{opcode: opDelete, key: "swapped", cas: 99999999})
			b.same("cas", packet{opcode: opDelete, key: "swapped", cas: 1})
			sameBinaryAtRandom(b, random, rounds(300), changeablePacket)
		})
	}
}
