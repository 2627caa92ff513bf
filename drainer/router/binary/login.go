package binary

import (
	"bytes"
	"io"
	"strconv"
)

const (
	plainLogin = "PLAIN"
	// maxMechanism bounds a mechanism's name, in bytes, as memcached does.
	maxMechanism = 32
	// maxLogin bounds user and password, in bytes.
	maxLogin = 2 << 10
)

// logIn handles the part of SASL with users and passwords (RFC 4616). In text, the first request is a set of
// them.
func (t *translator) logIn(p *pending) error {
	r := &t.request
	switch {
	case t.config.Admits == nil:
		return t.refuse(p, statusUnknown, false)
	case r.kind == mechanisms:
		p.local, p.body = true, []byte(plainLogin)
		return t.say(p)
	case r.keyLen > maxMechanism:
		return t.refuse(p, statusInvalid, false)
	case r.valueLen() > maxLogin:
		return t.refuse(p, statusNoMemory, false)
	}
	data := make([]byte, r.valueLen())
	if _, err := io.ReadFull(t.client, data); err != nil {
		return err
	}
	t.loggedIn = false
	known := string(r.theKey()) == plainLogin && (r.kind == login || t.invited)
	p.local = true
	if t.invited = known && len(data) == 0; t.invited {
		p.status = statusContinue
		return t.say(p)
	}
	user, password, ok := credentials(data)
	if !known || !ok || !t.config.Admits(user, password) {
		p.fail(statusLogin)
		return t.say(p)
	}
	t.loggedIn = true
	p.body = []byte("Authenticated")
	if t.opened {
		return t.say(p)
	}
	t.opened, p.local = true, false
	if err := t.expect(p); err != nil {
		return err
	}
	text := strconv.AppendInt([]byte("set login 0 0 "), int64(len(user)+len(" ")+len(password)), 10)
	text = append(append(append(text, "\r\n"...), user...), ' ')
	_, err := t.text.Write(append(append(text, password...), "\r\n"...))
	return err
}

// credentials returns the user and the password. The user to act for must be the same user.
func credentials(data []byte) (user, password []byte, ok bool) {
	parts := bytes.Split(data, []byte{0})
	if len(parts) != 3 || len(parts[0]) > 0 && !bytes.Equal(parts[0], parts[1]) {
		return nil, nil, false
	}
	user, password = parts[1], parts[2]
	return user, password, oneWord(user) && oneWord(password)
}

// oneWord tells whether b is one word, which is all that text can carry.
func oneWord(b []byte) bool {
	words := bytes.Fields(b)
	return len(words) == 1 && len(words[0]) == len(b)
}
