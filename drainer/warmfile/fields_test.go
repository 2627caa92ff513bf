package warmfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// One impossible field of one item is found, and the error has its offset.
func TestEveryFieldIsChecked(t *testing.T) {
	t.Parallel()
	m := startMember(t)
	raw := m.Raw()
	for i := range 497 {
		raw.Must("STORED", "set key"+itoa(i)+" 5 0 10", []byte("0123456789"))
	}
	for i := range 3 {
		raw.Must("STORED", "set large"+itoa(i)+" 0 0 600000", make([]byte, 600000))
	}
	m.Save()
	pristine, image := m.read(m.Path), m.saved()
	if items, err := readFile(t, pristine, image, true); err != nil || len(items) != 500 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	small, large := findItem(t, pristine, "key100"), findItem(t, pristine, "large1")
	chunk := int64(binary.LittleEndian.Uint64(pristine[large+48+8+7:]) - image.Base) // the second one
	tests := map[string]struct {
		offset int64
		data   []byte
		want   error
	}{
		"unknown flag":              {small + offFlags, []byte{0x03, 0x80}, ErrUnknownLayout},
		"value in extstore":         {small + offFlags, []byte{0x83, 0x01}, ErrUnknownLayout},
		"linked and free":           {small + offFlags, []byte{0x07, 0x01}, ErrUnknownLayout},
		"no CAS":                    {small + offFlags, []byte{0x01, 0x01}, ErrUnknownLayout},
		"free with a flag":          {small + offFlags, []byte{0x04, 0x01}, ErrCorrupt},
		"no flags field":            {small + offFlags, []byte{0x03, 0x00}, ErrUnknownLayout},
		"another class":             {small + offClass, []byte{0x05}, ErrCorrupt},
		"no class":                  {small + offClass, []byte{0x00}, ErrCorrupt},
		"empty key":                 {small + offKeyLen, []byte{0}, ErrCorrupt},
		"key too long":              {small + offKeyLen, []byte{251}, ErrCorrupt},
		"key longer than it is":     {small + offKeyLen, []byte{7}, ErrUnknownLayout},
		"value without line end":    {small + offBytes, []byte{1, 0, 0, 0}, ErrCorrupt},
		"negative value":            {small + offBytes, []byte{0xff, 0xff, 0xff, 0xff}, ErrCorrupt},
		"value past its slot":       {small + offBytes, []byte{0xff, 0x00, 0, 0}, ErrCorrupt},
		"value past everything":     {small + offBytes, []byte{0xff, 0xff, 0xff, 0x7f}, ErrCorrupt},
		"value shorter than it is":  {small + offBytes, []byte{11, 0, 0, 0}, ErrUnknownLayout},
		"chunked in another class":  {large + offClass, []byte{0x05}, ErrCorrupt},
		"chunked in another page":   {large + 48 + 8 + 7 + offChunkOrig, []byte{0x09}, ErrCorrupt},
		"chunked, another owner":    {large + 48 + 8 + 7 + offChunkHead, []byte{0x08}, ErrCorrupt},
		"chain out of the file":     {large + 48 + 8 + 7 + 6, []byte{0xff}, ErrCorrupt},
		"chain between slots":       {large + 48 + 8 + 7, []byte{0x37}, ErrCorrupt},
		"chain ends early":          {large + 48 + 8 + 7, make([]byte, 8), ErrCorrupt},
		"chain longer than item":    {large + offBytes, []byte{0x00, 0x10, 0x00, 0x00}, ErrCorrupt},
		"chain in a circle":         {chunk + offNext, pristine[large+48+8+7 : large+48+8+7+8], ErrCorrupt},
		"chunk of another owner":    {chunk + offChunkHead, []byte{0x08}, ErrCorrupt},
		"chunk that is free":        {chunk + offFlags, []byte{4, 0}, ErrCorrupt},
		"chunk over its size":       {chunk + offChunkUsed, []byte{0xff, 0xff, 0xff, 0x00}, ErrCorrupt},
		"chunk with less than size": {chunk + offChunkUsed, []byte{0x01, 0x00, 0x00, 0x00}, ErrCorrupt},
		"chunk of negative size":    {chunk + offChunkUsed, []byte{0xff, 0xff, 0xff, 0xff}, ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			at := pristine[test.offset:][:len(test.data)]
			before := bytes.Clone(at)
			copy(at, test.data)
			_, err := readFile(t, pristine, image, true)
			copy(at, before)
			var refusal *Error
			if !errors.As(err, &refusal) || !errors.Is(err, test.want) || refusal.Offset < 0 || !strings.Contains(err.Error(), "offset") {
				t.Errorf("got %v, want %v with the offset", err, test.want)
			}
		})
	}
}
