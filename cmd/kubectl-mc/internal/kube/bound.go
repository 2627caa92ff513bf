package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// answersWithin bounds how long the API server may take for an answer; --request-timeout sets another bound.
const answersWithin = 30 * time.Second

// bound returns the config with a bound for each answer. A request that follows a log has a bound for its beginning alone.
func bound(config *rest.Config) *rest.Config {
	within := config.Timeout
	if within <= 0 {
		within = answersWithin
	}
	config = rest.CopyConfig(config)
	config.Timeout = 0 // this bound would end requests that follow a log
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bounded{next, within} })
	return config
}

type bounded struct {
	next   http.RoundTripper
	within time.Duration
}

// Silent is an API server that does not answer.
type Silent struct {
	Host   string
	Within time.Duration
}

func (e *Silent) Error() string {
	return fmt.Sprintf("the API server at %s has not answered for %s (--request-timeout sets another bound)", e.Host, e.Within)
}

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(b.within, func() { cancel(&Silent{r.URL.Host, b.within}) })
	answer, err := b.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		timer.Stop()
		err = named(ctx, err)
		cancel(nil)
		return nil, err
	}
	if r.URL.Query().Get("follow") == "true" {
		timer.Stop()
	}
	answer.Body = &body{answer.Body, ctx, func() { timer.Stop(); cancel(nil) }}
	return answer, nil
}

// named names the API server if the bound has ended the request.
func named(ctx context.Context, err error) error {
	silent := (*Silent)(nil)
	if errors.As(context.Cause(ctx), &silent) {
		return silent
	}
	return err
}

// body is the body of an answer.
type body struct {
	io.ReadCloser
	ctx context.Context
	end func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = named(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
