//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"sync"
)

// log keeps a target's whole output, and shows the lines about passed and failed tests.
type log struct {
	mu     sync.Mutex
	file   *os.File
	path   string
	target string
	line   []byte
	number int
	bad    []string
}

func newLog(path, target string) (*log, error) {
	file, err := os.Create(path)
	return &log{file: file, path: path, target: target}, err
}

var (
	shown = regexp.MustCompile(`^(ok |ok\t|FAIL|--- (PASS|FAIL)|panic: |DONE |make.*\*\*\*|integration: |[a-z]+: \d)`)
	wrong = regexp.MustCompile(`^\s*--- FAIL: (\S+)|^FAIL\s+(\S+)|^panic: (.*)|^(make.*\*\*\*.*)`)
)

// Write takes any piece of the output.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, piece := range bytes.SplitAfter(p, []byte("\n")) {
		l.line = append(l.line, piece...)
		if bytes.HasSuffix(l.line, []byte("\n")) {
			l.take()
		}
	}
	return l.file.Write(p)
}

func (l *log) take() {
	l.number++
	line := bytes.TrimRight(l.line, "\n")
	if shown.Match(line) {
		fmt.Printf("%s: %s\n", l.target, line)
	}
	if m := wrong.FindSubmatch(line); m != nil {
		what := string(bytes.Join(m[1:], nil))
		l.bad = append(l.bad, fmt.Sprintf("%.150s (%s:%d)", what, l.path, l.number))
	}
	l.line = l.line[:0]
}

// note adds a failure.
func (l *log) note(what string) {
	_, _ = fmt.Fprintf(l, "FAIL %s\n", what)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad = append(l.bad, what)
}

// failures returns the lines about failed tests, with their places.
func (l *log) failures() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bad
}

func (l *log) close() { _ = l.file.Close() }
