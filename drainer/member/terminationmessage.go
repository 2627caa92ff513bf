package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/start"
	"example.com/memcached-operator/drainer/volume"
)

// termination is the message that the kubelet finds when the container has ended. Only one goroutine may use
// it at a time.
type termination struct {
	// path is the kubelet's file; "" if there is none.
	path string
	// written is the file's current content.
	written string
}

// write makes message the content of the kubelet's file.
func (t *termination) write(message string) error {
	if message == t.written || t.path == "" {
		return nil
	}
	t.written = message
	return os.WriteFile(t.path, []byte(message), 0o644)
}

// warning writes the message about the next start; nil writes an empty one.
func (t *termination) warning(c *contract.ColdStart) error {
	if c == nil {
		return t.write("")
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return t.write(string(b))
}

// saving writes how far the save is.
func (t *termination) saving(s contract.Saving) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return t.write(string(b))
}

// trouble writes why the member does not run, if the cause is the disk or memcached's arguments.
func (t *termination) trouble(err error) error {
	reason := volume.Trouble(err)
	if _, ok := errors.AsType[unfitError](err); ok {
		reason = contract.ReasonLayoutRefused
	}
	if reason == "" {
		return nil
	}
	return t.refuse(reason, err)
}

// refuse writes why the member does not start, or could not save.
func (t *termination) refuse(reason string, why error) error {
	const most = 1 << 10
	message, err := json.Marshal(contract.Refusal{Reason: reason, Message: fmt.Sprintf("%.*s", most, contract.OneLine(why))})
	return errors.Join(err, t.write(string(message)))
}

// warn keeps the message about a start after a crash current: whether it would be cold.
func (s *supervisor) warn() {
	if s.termination.path == "" {
		return
	}
	c, err := start.AfterCrash(s.Member)
	if err == nil {
		err = s.termination.warning(c)
	}
	if err != nil {
		s.std.Logf("the termination message can't be kept up to date: %v", err)
		s.termination.path = ""
	}
}

// warnOfNextStart writes how the next container's memcached starts, for a member whose memcached did not
// start.
func (s *supervisor) warnOfNextStart(ctx context.Context) {
	c, err := start.NextWarning(ctx, s.Member, s.std.Logf)
	if err == nil {
		err = s.termination.warning(c)
	}
	if err != nil {
		s.std.Logf("the termination message can't be written: %v", err)
	}
}

// WarnOfNextStart writes the message about the member's next start to the kubelet's file, from another
// container.
func WarnOfNextStart(ctx context.Context, m start.Member, path string, std commandline.IO) {
	c, err := start.NextWarning(ctx, m, std.Logf)
	if err == nil {
		err = (&termination{path: path}).warning(c)
	}
	if err != nil {
		std.Logf("the termination message can't be written: %v", err)
	}
}
