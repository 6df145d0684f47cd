// Package safetensors reads weight files in the safetensors format: an 8-byte little-endian header
// length, a JSON header that names tensors, their types, shapes and byte ranges, then the bytes.
// Input is taken as hostile: reading allocates no more than the file's own size justifies, and each
// fault is one clear error.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// DType is a type as the format names it.
type DType string

// The types that models of this module use; a file may hold others beside them.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
)

// Bytes is the size of one element, 0 for a type that the format does not have.
func (d DType) Bytes() int {
	switch d {
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3":
		return 1
	case F16, BF16, "I16", "U16":
		return 2
	case F32, "I32", "U32":
		return 4
	case "F64", "I64", "U64":
		return 8
	}
	return 0
}

// Tensor is one array. Data, row-major and little-endian, is a part of the file and must not be
// changed; it need not be aligned.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
}

// maxHeader is the format's own limit for the header.
const maxHeader = 100_000_000

// Parse reads one file. The tensors share its memory and come in the order of their bytes.
func Parse(file []byte) ([]Tensor, error) {
	if len(file) < 8 {
		return nil, fmt.Errorf("%d bytes are too few for a header length", len(file))
	}
	length := binary.LittleEndian.Uint64(file)
	if length > maxHeader {
		return nil, fmt.Errorf("a header of %d bytes is longer than the format allows (%d)",
			length, maxHeader)
	}
	if length > uint64(len(file)-8) {
		return nil, fmt.Errorf("the header takes %d bytes, the file has %d after it: truncated?",
			length, len(file)-8)
	}
	entries, err := parseHeader(file[8:][:length])
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return slice(entries, file[8+length:])
}

// entry is what the header says of one tensor.
type entry struct {
	name    string
	DType   DType   `json:"dtype"`
	Shape   numbers `json:"shape"`
	Offsets numbers `json:"data_offsets"`
}

// numbers is a short list: a shape or a byte range.
type numbers []uint64

// maxNumbers bounds a list before it is decoded, for "0," in a header would take eight bytes in
// memory.
const maxNumbers = 16

// UnmarshalJSON implements json.Unmarshaler.
func (n *numbers) UnmarshalJSON(list []byte) error {
	if bytes.Count(list, []byte{','}) >= maxNumbers {
		return fmt.Errorf("a list of more than %d numbers", maxNumbers)
	}
	return json.Unmarshal(list, (*[]uint64)(n))
}

// parseHeader decodes the JSON object key by key, because a map would hide a name that comes twice.
func parseHeader(header []byte) ([]entry, error) {
	var entries []entry
	err := eachKey(header, func(name string, d *json.Decoder) error {
		if name == "__metadata__" {
			var metadata map[string]string
			return d.Decode(&metadata)
		}
		e := entry{name: name}
		if err := d.Decode(&e); err != nil {
			return err
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// eachKey calls f for each key of a JSON object, with the decoder before the value. A key that
// comes twice and bytes after the object are errors.
func eachKey(object []byte, f func(key string, d *json.Decoder) error) error {
	err := walk(object, f)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends too early")
	}
	return err
}

func walk(object []byte, f func(key string, d *json.Decoder) error) error {
	d := json.NewDecoder(bytes.NewReader(object))
	d.DisallowUnknownFields()
	if t, err := d.Token(); err != nil {
		return err
	} else if t != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key := t.(string) // in an object, the token before a value is always its key
		if seen[key] {
			return fmt.Errorf("%q comes twice", key)
		}
		seen[key] = true
		if err := f(key, d); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if rest := bytes.TrimSpace(object[d.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("%d bytes follow the object", len(rest))
	}
	return nil
}

// slice cuts the data into tensors. The format wants them to cover it without holes or overlaps.
func slice(entries []entry, data []byte) ([]Tensor, error) {
	for _, e := range entries {
		if err := e.check(uint64(len(data))); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", e.name, err)
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Offsets[0], b.Offsets[0]),
			cmp.Compare(a.Offsets[1], b.Offsets[1]), cmp.Compare(a.name, b.name))
	})
	tensors := make([]Tensor, 0, len(entries))
	end := uint64(0)
	for _, e := range entries {
		switch from := e.Offsets[0]; {
		case from < end:
			return nil, fmt.Errorf("tensor %q overlaps the one before it: it starts at byte %d, "+
				"before %d", e.name, from, end)
		case from > end:
			return nil, fmt.Errorf("bytes [%d, %d) before tensor %q belong to no tensor",
				end, from, e.name)
		}
		end = e.Offsets[1]
		shape := make([]int, len(e.Shape))
		for i, n := range e.Shape {
			shape[i] = int(n)
		}
		tensors = append(tensors, Tensor{Name: e.name, DType: e.DType, Shape: shape,
			Data: data[e.Offsets[0]:end:end]})
	}
	if end != uint64(len(data)) {
		return nil, fmt.Errorf("%d bytes at the end belong to no tensor", uint64(len(data))-end)
	}
	return tensors, nil
}

// check compares type, shape and byte range with each other and with the size of the data.
func (e *entry) check(size uint64) error {
	width := uint64(e.DType.Bytes())
	if width == 0 {
		return fmt.Errorf("unknown dtype %q", e.DType)
	}
	if len(e.Offsets) != 2 || e.Offsets[0] > e.Offsets[1] {
		return fmt.Errorf("data_offsets %v are not a byte range", e.Offsets)
	}
	if e.Offsets[1] > size {
		return fmt.Errorf("bytes [%d, %d) lie beyond the file's %d data bytes: truncated?",
			e.Offsets[0], e.Offsets[1], size)
	}
	bytes := width
	for _, n := range e.Shape {
		high, low := bits.Mul64(bytes, n)
		if n > math.MaxInt || high != 0 {
			return fmt.Errorf("shape %v is too large", e.Shape)
		}
		bytes = low
	}
	if bytes != e.Offsets[1]-e.Offsets[0] {
		return fmt.Errorf("shape %v of %s takes %d bytes, data_offsets give it %d",
			e.Shape, e.DType, bytes, e.Offsets[1]-e.Offsets[0])
	}
	return nil
}
