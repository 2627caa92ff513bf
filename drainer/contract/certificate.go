package contract

// CertificatePath is the HTTP path at which supervisors and routers report the state of their TLS
// certificate. A supervisor serves it beside ReadyPath, a router beside its other answers.
const CertificatePath = "/certificate"

// Certificate is the state of a TLS certificate, in JSON, without the files' content.
type Certificate struct {
	// NotAfter is when the first certificate of the chain expires, or the authority in ca.crt that signed
	// it, in seconds since 1970; 0 if it can't be read.
	NotAfter int64 `json:"notAfter,omitempty"`
	// Trouble is why the files can't be used; empty if they can.
	Trouble string `json:"trouble,omitempty"`
}

// MaxCertificateTrouble bounds Certificate.Trouble, in bytes.
const MaxCertificateTrouble = 256
