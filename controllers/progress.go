package controllers

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/drainer/contract"
)

// The types of questions to drainers, members and routers.
type (
	// ProgressReader returns the last progress line of a drainer's pod, or nil.
	ProgressReader = ask.ProgressReader
	// MemoryReader asks the member at host:port what it holds.
	MemoryReader = ask.MemoryReader
	// RingReader asks the router at host:port which table it has acknowledged, and gives it the newest one.
	RingReader = ask.RingReader
	// CertificateReader asks the member's supervisor, or the router, at host:port about its
	// certificate.
	CertificateReader = ask.CertificateReader
	// StepReader asks the supervisor at host:port whether it has started empty.
	StepReader = ask.StepReader
	// NodeReader lists and watches nodes.
	NodeReader = ask.NodeReader
	// Stepped is the answer to a StepReader.
	Stepped = contract.Stepped
	// Certificate is the answer to a CertificateReader.
	Certificate = contract.Certificate
	// SignedTable is a table that routers are given.
	SignedTable = ask.SignedTable
	// RingAcknowledged is the answer to a RingReader.
	RingAcknowledged = contract.RingAcknowledged
)

// ProgressFromLogs reads a drainer's progress from the end of its log, through the API
// server, so the drainer needs no credentials and no port.
func ProgressFromLogs(clients kubernetes.Interface) ProgressReader {
	return ask.ProgressFromLogs(clients)
}

// MemoryFromStats asks the member itself what it holds. The operator must be able to reach the member, and needs
// no credentials.
func MemoryFromStats(ctx context.Context, address string) (Holds, error) {
	return ask.MemoryFromStats(ctx, address)
}

// RingFromAdmin asks the router itself, and gives it the table. The operator must be able to reach
// the router.
func RingFromAdmin(ctx context.Context, address string, newest *SignedTable) (RingAcknowledged, error) {
	return ask.RingFromAdmin(ctx, address, newest)
}

// StepFromPod asks the pod itself. The operator must be able to reach the pod.
func StepFromPod(ctx context.Context, address string) (Stepped, error) {
	return ask.StepFromPod(ctx, address)
}

// CertificateFromPod asks the pod itself. The operator must be able to reach the pod.
func CertificateFromPod(ctx context.Context, address string) (Certificate, error) {
	return ask.CertificateFromPod(ctx, address)
}
