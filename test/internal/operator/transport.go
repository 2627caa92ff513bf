package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lifetime is that of one operator. A dead one sends no request.
type lifetime struct {
	dead    atomic.Bool
	onDeath func()
}

func (l *lifetime) die() {
	l.dead.Store(true)
	l.onDeath()
}

var (
	errDead       = errors.New("the operator is dead")
	errAnswerLost = errors.New("the connection broke before the answer")
)

// transport records what the operator writes, and injects the faults.
type transport struct {
	next    http.RoundTripper
	journal *Journal
	life    *lifetime
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	noteRight(req)
	if t.life.dead.Load() {
		return nil, errDead
	}
	w, writes := writeOf(req)
	if !writes {
		return t.next.RoundTrip(req)
	}
	w.Body = body(req)
	n, fault := t.journal.begin(w)
	switch fault {
	case DieBefore:
		t.life.die()
		return nil, errDead
	case Conflict:
		return refusal(req, http.StatusConflict, metav1.StatusReasonConflict), nil
	case Denied:
		return refusal(req, http.StatusBadRequest, ""), nil
	case ServerError:
		return refusal(req, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
	}
	response, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	t.journal.answered(n, response.StatusCode)
	if fault == NoFault {
		return response, nil
	}
	_ = response.Body.Close()
	if fault == DieAfter {
		t.life.die()
		return nil, errDead
	}
	return nil, errAnswerLost
}

// refusal is an answer of an API server that has applied nothing.
func refusal(req *http.Request, code int32, reason metav1.StatusReason) *http.Response {
	b, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: "injected by the test",
	})
	if err != nil {
		panic(err) // a Status can always be marshalled
	}
	return &http.Response{
		StatusCode: int(code),
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(b)),
		Request:    req,
	}
}

// body returns the request's body, and leaves it in the request.
func body(req *http.Request) string {
	if req.GetBody == nil {
		return ""
	}
	r, err := req.GetBody()
	if err != nil {
		return ""
	}
	b, _ := io.ReadAll(r)
	return string(b)
}
