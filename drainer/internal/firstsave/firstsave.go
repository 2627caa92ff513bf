// Package firstsave makes saves of the first form, which only tests still write.
package firstsave

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
)

// Of makes a save with this header, of these pages of a warm file.
func Of(head any, file io.ReaderAt, pageSize int, pages []int32) ([]byte, error) {
	header, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Checksum(header, table)
	var b bytes.Buffer
	b.WriteString("mcsave\x00\x01")
	number := func(n uint32) { b.Write(binary.LittleEndian.AppendUint32(nil, n)) }
	number(uint32(len(header)))
	number(sum)
	b.Write(header)
	page := make([]byte, pageSize)
	for _, n := range pages {
		offset := int64(n) * int64(pageSize)
		if _, err := file.ReadAt(page, offset); err != nil && err != io.EOF {
			return nil, err
		}
		place := binary.LittleEndian.AppendUint32(nil, sum)
		place = binary.LittleEndian.AppendUint64(place, uint64(offset))
		b.Write(page)
		number(crc32.Update(crc32.Checksum(place, table), table, page))
	}
	return b.Bytes(), nil
}
