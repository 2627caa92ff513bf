package controllers

import (
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// namespaceEnds tells whether the API server has refused the write because the namespace is being
// deleted. This is expected: the operator may not know yet, and all objects there are about to be
// deleted.
func namespaceEnds(err error) bool {
	return err != nil && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Logger logs failed writes into a namespace that is being deleted at level debug, and not as
// errors. The writes may be those of a reconcile or of the event recorder.
func Logger(log logr.Logger) logr.Logger {
	return logr.New(endingSink{log.WithCallDepth(1).GetSink()})
}

// endingSink wraps an initialized sink.
type endingSink struct{ logr.LogSink }

func (endingSink) Init(logr.RuntimeInfo) {}

func (s endingSink) Error(err error, msg string, keysAndValues ...any) {
	const debug = 1
	switch {
	case !namespaceEnds(err):
		s.LogSink.Error(err, msg, keysAndValues...)
	case s.Enabled(debug):
		s.Info(debug, msg, append(slices.Clip(keysAndValues), "error", err.Error())...)
	}
}

func (s endingSink) WithValues(keysAndValues ...any) logr.LogSink {
	return endingSink{s.LogSink.WithValues(keysAndValues...)}
}

func (s endingSink) WithName(name string) logr.LogSink { return endingSink{s.LogSink.WithName(name)} }

func (s endingSink) WithCallDepth(depth int) logr.LogSink {
	if deeper, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return endingSink{deeper.WithCallDepth(depth)}
	}
	return s
}
