// Package binary lets an application that uses memcached's binary protocol talk to a server that uses its
// text protocol: requests become meta commands, and their answers become packets.
//
// Source: memcached's proto_bin.c (1.6.18) and doc/protocol-binary.xml.
package binary

import "encoding/binary"

const (
	// Magic is the first byte of each request. No text command begins with it.
	Magic = 0x80

	magicAnswer = 0x81
	headerSize  = 24
	// maxKey bounds a key, in bytes.
	maxKey = 250
	// maxBody bounds a body, in bytes, as newer memcacheds do.
	maxBody = 1 << 30
	// noCreate is the expiration of an increment that doesn't make a counter.
	noCreate = 0xffffffff
)

// header of a request.
type header struct {
	magic, opcode byte
	// The lengths are in bytes; the body has the extras, the key and the value.
	keyLen, extrasLen, bodyLen int
	opaque                     uint32
	cas                        uint64
}

// parse reads a header of headerSize bytes.
func (h *header) parse(b []byte) {
	*h = header{
		magic: b[0], opcode: b[1],
		keyLen: int(binary.BigEndian.Uint16(b[2:])), extrasLen: int(b[4]), bodyLen: int(binary.BigEndian.Uint32(b[8:])),
		opaque: binary.BigEndian.Uint32(b[12:]), cas: binary.BigEndian.Uint64(b[16:]),
	}
}

// valueLen returns the length of the body after the extras and the key, in bytes.
func (h *header) valueLen() int { return h.bodyLen - h.extrasLen - h.keyLen }

type status uint16

const (
	statusOK        status = 0x00
	statusNotFound  status = 0x01
	statusExists    status = 0x02
	statusTooLarge  status = 0x03
	statusInvalid   status = 0x04
	statusNotStored status = 0x05
	statusNoNumber  status = 0x06
	statusLogin     status = 0x20
	statusContinue  status = 0x21
	statusUnknown   status = 0x81
	statusNoMemory  status = 0x82
	statusInternal  status = 0x84
	statusTemporary status = 0x86
)

// text returns the body of an error that has no other body.
func (s status) text() string {
	switch s {
	case statusNotFound:
		return "Not found"
	case statusExists:
		return "Data exists for key."
	case statusTooLarge:
		return "Too large."
	case statusInvalid:
		return "Invalid arguments"
	case statusNotStored:
		return "Not stored."
	case statusNoNumber:
		return "Non-numeric server-side value for incr or decr"
	case statusLogin:
		return "Auth failure."
	case statusUnknown:
		return "Unknown command"
	case statusNoMemory:
		return "Out of memory"
	}
	return ""
}

// kind is the kind of a request, which determines the form of its packet.
type kind byte

const (
	unknown kind = iota
	get
	touch // and get, for some opcodes
	store
	extend // append and prepend
	remove
	count // increment and decrement
	flush
	stat
	noop
	version
	quit
	mechanisms // of logins
	login
	loginStep
)

// command is the meaning of an opcode.
type command struct {
	kind  kind
	quiet bool
	// withKey and withValue mean that the answer has the key and the value.
	withKey, withValue bool
	// mode is the mode of the meta command.
	mode string
	// missing is the status if there is an item where none may be, or no item where there has to be one.
	missing status
}

var commands = [256]command{
	0x00: {kind: get, withValue: true},
	0x01: {kind: store, missing: statusNotStored},
	0x02: {kind: store, mode: " ME", missing: statusExists},
	0x03: {kind: store, mode: " MR", missing: statusNotFound},
	0x04: {kind: remove},
	0x05: {kind: count, missing: statusNotStored},
	0x06: {kind: count, mode: " MD", missing: statusNotStored},
	0x07: {kind: quit},
	0x08: {kind: flush},
	0x09: {kind: get, withValue: true, quiet: true},
	0x0a: {kind: noop},
	0x0b: {kind: version},
	0x0c: {kind: get, withValue: true, withKey: true},
	0x0d: {kind: get, withValue: true, withKey: true, quiet: true},
	0x0e: {kind: extend, mode: " MA", missing: statusNotStored},
	0x0f: {kind: extend, mode: " MP", missing: statusNotStored},
	0x10: {kind: stat},
	0x11: {kind: store, quiet: true, missing: statusNotStored},
	0x12: {kind: store, mode: " ME", quiet: true, missing: statusExists},
	0x13: {kind: store, mode: " MR", quiet: true, missing: statusNotFound},
	0x14: {kind: remove, quiet: true},
	0x15: {kind: count, quiet: true, missing: statusNotStored},
	0x16: {kind: count, mode: " MD", quiet: true, missing: statusNotStored},
	0x17: {kind: quit, quiet: true},
	0x18: {kind: flush, quiet: true},
	0x19: {kind: extend, mode: " MA", quiet: true, missing: statusNotStored},
	0x1a: {kind: extend, mode: " MP", quiet: true, missing: statusNotStored},
	0x1c: {kind: touch},
	0x1d: {kind: touch, withValue: true},
	0x1e: {kind: touch, withValue: true, quiet: true},
	0x20: {kind: mechanisms},
	0x21: {kind: login},
	0x22: {kind: loginStep},
	0x23: {kind: touch, withValue: true, withKey: true},
	0x24: {kind: touch, withValue: true, withKey: true, quiet: true},
}

// fits tells whether the packet has the parts that its command needs, and no others.
func (h *header) fits(k kind) bool {
	switch k {
	case get, remove:
		return h.keyLen > 0 && h.extrasLen == 0 && h.valueLen() == 0
	case touch:
		return h.keyLen > 0 && h.extrasLen == 4 && h.valueLen() == 0
	case store:
		return h.keyLen > 0 && h.extrasLen == 8
	case count:
		return h.keyLen > 0 && h.extrasLen == 20 && h.valueLen() == 0
	case extend, login, loginStep:
		return h.keyLen > 0 && h.extrasLen == 0
	case flush:
		return h.keyLen == 0 && (h.extrasLen == 0 || h.extrasLen == 4) && h.valueLen() == 0
	case stat:
		return h.extrasLen == 0 && h.valueLen() == 0
	case noop, version, quit, mechanisms:
		return h.bodyLen == 0
	}
	return true
}
