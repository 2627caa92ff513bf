package discovery

import (
	"crypto/sha256"
	"crypto/subtle"
)

// sameSecret compares in a time that tells nothing of the secret.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
