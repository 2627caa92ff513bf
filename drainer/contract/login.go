package contract

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
)

// AuthFileKey is the key of the logins in a Secret.
const AuthFileKey = "auth-file"

// maxLogins is how many lines memcached reads of its auth file.
const maxLogins = 8

// Login is a user name and a password.
type Login struct{ User, Password string }

// FirstLogin returns the first login of an auth file.
func FirstLogin(name string, text []byte) (Login, error) {
	all, err := Logins(name, text)
	if err != nil {
		return Login{}, err
	}
	return all[0], nil
}

// Logins returns the logins of an auth file, at least one. Its errors never show the file's content.
// memcached stops reading at an empty line, ignores a last line without a line end, and accepts no blanks.
func Logins(name string, text []byte) ([]Login, error) {
	lines := strings.Split(string(text), "\n")
	if n := len(lines) - 1; n < 1 || n > maxLogins || lines[n] != "" {
		return nil, fmt.Errorf("%s must be 1 to %d lines user:password, each with an end", name, maxLogins)
	}
	var all []Login
	for i, line := range lines[:len(lines)-1] {
		user, password, ok := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
		if !ok || user == "" || password == "" || strings.ContainsAny(user+password, " \t\r") {
			return nil, fmt.Errorf("line %d of %s is not user:password, without blanks", i+1, name)
		}
		all = append(all, Login{user, password})
	}
	return all, nil
}

// Admits tells whether a client's text, "user password", is one of the logins. Admits compares digests of all
// logins, so that its duration reveals nothing.
func Admits(logins []Login, given string) bool {
	digest, admitted := sha256.Sum256([]byte(given)), 0
	for _, l := range logins {
		known := sha256.Sum256([]byte(l.User + " " + l.Password))
		admitted |= subtle.ConstantTimeCompare(digest[:], known[:])
	}
	return admitted == 1
}
