package volume

import (
	"encoding/json"
	"fmt"
	"time"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

// State is the state of a member in its manifest.
type State string

// The states of a member, in order.
const (
	// Starting: memcached is about to start, or has not answered yet. Image is absent; Previous describes the
	// file as the previous memcached left it.
	Starting State = "Starting"
	// Running: Image describes the running server and is about a second old.
	Running State = "Running"
	// Saved: memcached saved, and the file has reached the disk. Image is the content of .meta.
	Saved State = "Saved"
	// Died: memcached ended without a save, but the file has reached the disk.
	Died State = "Died"
	// Damaged: memcached ended, and the disk has not taken all of the file. Note has the disk's error.
	Damaged State = "Damaged"
)

// Manifest describes the warm file beside it, so that the file can be read after a crash although memcached
// wrote no .meta.
type Manifest struct {
	// Format is the version of this structure; 1.
	Format int   `json:"format"`
	State  State `json:"state"`
	// Arguments are those of memcached, its name first.
	Arguments []string `json:"arguments"`
	PID       int      `json:"pid,omitempty"`
	// BootID identifies the boot of the node's kernel. In the states Starting and Running the file can be
	// trusted only while that kernel runs, because it has the pages that are not on the disk yet.
	BootID  string    `json:"bootID"`
	Updated time.Time `json:"updated"`
	// Image describes the file as of Updated.
	Image *warmfile.Image `json:"image,omitempty"`
	// Previous is the latest Image before this start.
	Previous *warmfile.Image `json:"previous,omitempty"`
	// Fresh means that there was no warm file when this memcached started. Until memcached has answered,
	// nothing is known of the file.
	Fresh bool `json:"fresh,omitempty"`
	// Note names, for people, the steps that were left out at the start, and why.
	Note string `json:"note,omitempty"`
}

// Marshal encodes the manifest.
func (m *Manifest) Marshal() ([]byte, error) {
	m.Format = 1
	b, err := json.MarshalIndent(m, "", "  ")
	return append(b, '\n'), err
}

// ParseManifest decodes a manifest and checks that its images are possible.
func ParseManifest(data []byte) (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if m.Format != 1 {
		return nil, fmt.Errorf("manifest: format %d is not known", m.Format)
	}
	switch m.State {
	case Starting, Damaged:
	case Running, Saved, Died:
		if m.Image == nil {
			return nil, fmt.Errorf("manifest: state %s without an image", m.State)
		}
	default:
		return nil, fmt.Errorf("manifest: state %.40q is not known", m.State)
	}
	for _, image := range []*warmfile.Image{m.Image, m.Previous} {
		if image == nil {
			continue
		}
		if image.FlagsBytes == 0 && warmfile.SmallFlagsOnly(image.Version) {
			image.FlagsBytes = item.SmallFlags // an earlier manifest doesn't have it
		}
		if err := image.Check(); err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
	}
	return &m, nil
}

// Latest returns the latest description of the file: Image, or else Previous, or else nil.
func (m *Manifest) Latest() *warmfile.Image {
	if m.Image != nil {
		return m.Image
	}
	return m.Previous
}

// Unanswered tells whether the file was new when its memcached started, and memcached has never answered.
func (m *Manifest) Unanswered() bool { return m.State == Starting && m.Fresh }
