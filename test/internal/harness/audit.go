package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// AuditLog reads an API server's audit log while the log grows. The server writes to it before it answers
// a request.
type AuditLog struct {
	Path   string
	offset int64
}

// AuditEvent is a request in an audit log.
type AuditEvent struct {
	Verb      string `json:"verb"`
	ObjectRef struct {
		Namespace   string `json:"namespace"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// Read passes on the lines since the last call. The rest of a half line comes next time.
func (l *AuditLog) Read(each func(*AuditEvent)) error {
	f, err := os.Open(l.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return err
	}
	for lines := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.offset += int64(len(line))
		var event AuditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("%s: %w", l.Path, err)
		}
		each(&event)
	}
}
