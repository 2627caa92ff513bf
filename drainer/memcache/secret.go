package memcache

import (
	"crypto/x509"

	"example.com/memcached-operator/drainer/contract"
)

// SecretError is about the files of a Secret: other files can fix it.
type SecretError struct{ err error }

func (e *SecretError) Error() string { return contract.OneLine(e.err) }
func (e *SecretError) Unwrap() error { return e.err }

// Failure returns the receipt's reason and the exit code.
func (e *SecretError) Failure() (reason string, exitCode int) {
	return contract.ReasonSecretInvalid, contract.ExitFailed
}

// CheckFiles is Check with a SecretError.
func (d Dialer) CheckFiles(usages ...x509.ExtKeyUsage) error {
	if err := d.Check(usages...); err != nil {
		return &SecretError{err}
	}
	return nil
}
