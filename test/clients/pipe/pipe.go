// Package pipe lets a client library answer requests, as test/e2e/testdata/library.py does: a request is a line
// of JSON, and so is its answer.
package pipe

import (
	"encoding/json"
	"os"
)

// Library is a client library. Get returns nil for a miss.
type Library interface {
	Get(key string) ([]byte, error)
	Set(key string, value []byte) error
}

type request struct{ Do, Key, Value string }

type answer struct {
	Value *string `json:"value"`
	Error string  `json:"error,omitempty"`
}

// Answer answers the requests on standard input, until the input ends.
func Answer(l Library) error {
	requests, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			return err
		}
		if err := answers.Encode(of(l, r)); err != nil {
			return err
		}
	}
}

func of(l Library, r request) (a answer) {
	var value []byte
	var err error
	switch r.Do {
	case "get":
		value, err = l.Get(r.Key)
	case "set":
		err = l.Set(r.Key, []byte(r.Value))
	default:
		a.Error = "it only gets and sets"
	}
	if err != nil {
		a.Error = err.Error()
	} else if value != nil {
		text := string(value)
		a.Value = &text
	}
	return a
}
