package contract

// CertificatePath is where a member's supervisor, beside ReadyPath, and a router, beside its other answers,
// say how the certificate stands that they serve with.
const CertificatePath = "/certificate"

// Certificate is how one stands, in JSON. It has no part of the files.
type Certificate struct {
	// NotAfter is when the first certificate of the chain ends, in seconds since 1970; 0 if that can't be read.
	NotAfter int64 `json:"notAfter,omitempty"`
	// Trouble is why the files can't be used; empty if they can.
	Trouble string `json:"trouble,omitempty"`
}

// MaxCertificateTrouble bounds Certificate.Trouble, in bytes.
const MaxCertificateTrouble = 256
